package archive

import (
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

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

	// Restored says that all this is known from the ledger of [Options]. Blobs
	// that are not documents are as good as kept then.
	Restored bool

	// Ignored are members that belong to no image, raw, at most 64 of them;
	// IgnoredCount counts all.
	Ignored      []string
	IgnoredCount int

	find    func(digest.Digest) (*Blob, *Error)
	list    func() []*Blob // those of find, in no order; nil for a layout directory
	costly  bool           // all of it had to be read to know what it holds
	file    io.ReaderAt    // nil for a stream and for a layout directory
	self    identity       // of the file
	read    atomic.Int64
	closers []io.Closer

	mu    sync.Mutex
	files map[string]watched // by path, as first opened; guarded by mu
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
	// read: an [*Error] (a layer of a docker archive that is absent, a config
	// that is no JSON, a digest that is none). Target is not to be used then.
	Err error
}

// Close lets go of the file. Blobs cannot be read after it.
func (a *Archive) Close() error {
	var errs []error
	for _, c := range a.closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// BytesRead counts the bytes that were read from the archive so far, of the
// index and of blobs. What is read from a temporary file is not counted.
func (a *Archive) BytesRead() int64 { return a.read.Load() }

// Blob returns the blob that the archive has under d, and whether there is
// one. Its bytes are not checked against d: hash what you read. Use
// [Archive.Missing] to say why there is none.
func (a *Archive) Blob(d digest.Digest) (*Blob, bool) {
	b, err := a.find(d)
	return b, err == nil
}

// Missing says why Blob(d) found nothing: the member is not there, the archive
// was cut off before it, it is a link to nowhere. It is nil when there is such
// a blob.
func (a *Archive) Missing(d digest.Digest) *Error {
	_, err := a.find(d)
	if err != nil && err.Expected == "" {
		err.Expected = d.String()
	}
	return err
}

// Unchanged looks at the file again and returns an [*Error] with
// CodeChangedWhileReading when it grew, was modified, replaced or removed
// after Open. For a layout directory that is its index and every blob that was
// asked for. It is always nil for a stream.
func (a *Archive) Unchanged() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, path := range slices.Sorted(maps.Keys(a.files)) {
		if err := a.files[path].unchanged(); err != nil {
			return err
		}
	}
	return nil
}

// watch remembers a file for [Archive.Unchanged].
func (a *Archive) watch(w watched) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.files == nil {
		a.files = map[string]watched{}
	}
	if _, known := a.files[w.path]; !known {
		a.files[w.path] = w
	}
}
