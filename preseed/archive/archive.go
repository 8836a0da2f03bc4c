package archive

import (
	"context"
	"errors"
	"io"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Format is the kind of image archive, in the words of the report.
type Format string

// The formats that are read.
const (
	OCIArchive    Format = "oci-archive"    // a tar of an OCI image layout; docker save of Docker 25 and later as well
	DockerArchive Format = "docker-archive" // a tar with a manifest.json: docker save before Docker 25, bazel, kaniko, nix
	OCILayout     Format = "oci-layout"     // a directory that is an OCI image layout
)

// Compression is what lies around the whole archive (not around its layers),
// found by its magic bytes: names of files decide nothing.
type Compression string

// The compressions that are read.
const (
	None Compression = "none"
	Gzip Compression = "gzip"
	Zstd Compression = "zstd"
)

// Archive is an opened image archive: what it holds is known, no layer was
// read. Its methods may be called from several goroutines at once.
type Archive struct {
	Format      Format
	Compression Compression
	Size        int64   // bytes of the file as it lies on disk; of all files for a layout directory; of the stream
	Images      []Image // in the archive's own order; never empty

	// Ignored are members that belong to no image, raw, at most 64 of them;
	// IgnoredCount counts all.
	Ignored      []string
	IgnoredCount int
}

// Image is one name in an archive together with what it names. An image with
// two names is two of them, one without a name is one with an empty Name.
type Image struct {
	// Name is the name as the archive has it: not checked, not normalised,
	// not to be shown without escaping. Empty when there is none.
	Name string
	// TagOnly says that Name is only a tag such as "latest": what an
	// org.opencontainers.image.ref.name without a repository is.
	TagOnly bool
	// Target is the manifest or index that is named. For docker archives it
	// is made here, as containerd makes it, with the platform of the config.
	Target ocispec.Descriptor
	// Err says why this image cannot be had although the archive can be
	// read: an [*Error], in docker archives only (a layer that is absent, a
	// config that is no JSON). Target is empty then.
	Err error
}

// Open reads the index of the archive at path: a regular file, or a directory
// that is an OCI image layout. It never blocks on a FIFO, socket or device.
// Uncompressed files are walked from header to header without reading a blob;
// compressed ones are decompressed once into an unlinked temporary file.
//
// What the archive is to blame for comes as an [*Error]; what the system says
// (no such file, no permission) as its *fs.PathError. See [CodeOf].
func Open(ctx context.Context, path string) (*Archive, error) {
	return nil, errors.ErrUnsupported
}

// OpenStream reads an archive from r to its end, standard input say, into an
// unlinked temporary file in spoolDir ("" is [os.TempDir]).
func OpenStream(ctx context.Context, r io.Reader, spoolDir string) (*Archive, error) {
	return nil, errors.ErrUnsupported
}

// Close lets go of the file. Blobs cannot be read after it.
func (a *Archive) Close() error { return nil }

// BytesRead counts the bytes that were read from the archive so far, of the
// index and of blobs.
func (a *Archive) BytesRead() int64 { return 0 }

// Blob returns the blob that the archive has under d, and whether there is
// one. Its bytes are not checked against d: hash what you read. Use
// [Archive.Missing] to say why there is none.
func (a *Archive) Blob(d digest.Digest) (*Blob, bool) { return nil, false }

// Missing says why Blob(d) found nothing: the member is not there, the archive
// was cut off before it, it is a link to nowhere.
func (a *Archive) Missing(d digest.Digest) *Error {
	return &Error{Code: CodeMissingBlob, Expected: d.String(), Found: "nothing"}
}

// Unchanged looks at the file again and returns an [*Error] with
// CodeChangedWhileReading when it grew, was modified or was replaced after
// Open. It is always nil for a stream.
func (a *Archive) Unchanged() error { return nil }
