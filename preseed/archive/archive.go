package archive

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
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

	// Ignored are members that belong to no image, raw, at most 64 of them;
	// IgnoredCount counts all.
	Ignored      []string
	IgnoredCount int

	find    func(digest.Digest) (*Blob, *Error)
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

// Open reads the index of the archive at path: a regular file, or a directory
// that is an OCI image layout. It never blocks on a FIFO, socket or device.
// Uncompressed files are walked from header to header without reading a blob
// (but for compressed layers of docker archives whose names do not tell their
// digests); compressed ones are decompressed once into a temporary file that
// has no name, in [os.TempDir].
//
// What the archive is to blame for comes as an [*Error]; what the system says
// (no such file, no permission) as its *fs.PathError. See [CodeOf].
func Open(ctx context.Context, path string) (*Archive, error) {
	f, w, err := open(path)
	if err != nil {
		return nil, err
	}
	if w.info.IsDir() {
		f.Close()
		return openLayout(ctx, w)
	}
	a := &Archive{Compression: None, Size: w.info.Size(), closers: []io.Closer{f}}
	a.watch(w)
	if err := a.readFile(ctx, f); err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

// readFile finds out how the file is compressed and reads its index.
func (a *Archive) readFile(ctx context.Context, f *os.File) error {
	data := counted{f, &a.read}
	head := make([]byte, min(headSize, a.Size))
	if _, err := io.ReadFull(io.NewSectionReader(data, 0, a.Size), head); err != nil {
		return fmt.Errorf("read: %w", err)
	}
	if err := checkHead(head, a.Size < headSize); err != nil {
		return err
	}
	a.Compression, _ = compressionOf(head)
	if a.Compression == None {
		return a.readTar(ctx, data, a.Size)
	}
	return a.spool(ctx, io.NewSectionReader(data, 0, a.Size), "")
}

// OpenStream reads an archive from r to its end, standard input say, into a
// temporary file in spoolDir ("" is [os.TempDir]) that has no name.
func OpenStream(ctx context.Context, r io.Reader, spoolDir string) (*Archive, error) {
	a := &Archive{Compression: None}
	if err := a.readStream(ctx, r, spoolDir); err != nil {
		a.Close()
		return nil, err
	}
	a.Size = a.read.Load()
	return a, nil
}

func (a *Archive) readStream(ctx context.Context, r io.Reader, spoolDir string) error {
	data := bufio.NewReaderSize(countedReader{r, &a.read}, copyBuffer)
	head, err := peek(data)
	if err != nil {
		return err
	}
	if err := checkHead(head, len(head) < headSize); err != nil {
		return err
	}
	a.Compression, _ = compressionOf(head)
	return a.spool(ctx, data, spoolDir)
}

// spool decompresses r into a temporary file and reads the index of that.
func (a *Archive) spool(ctx context.Context, r io.Reader, dir string) error {
	plain, err := decompress(cancelable{ctx, r}, a.Compression)
	if err != nil {
		return err
	}
	defer plain.Close()
	data := bufio.NewReaderSize(plain, copyBuffer)
	if err := a.checkInner(data); err != nil {
		return err
	}
	f, size, err := spool(ctx, data, dir)
	if err != nil {
		return err
	}
	a.closers = append(a.closers, f)
	return a.readTar(ctx, f, size)
}

// checkInner refuses what is compressed but is no tar, before it is written out.
func (a *Archive) checkInner(data *bufio.Reader) error {
	head, err := peek(data)
	if err != nil {
		return err
	}
	err = checkHead(head, len(head) < headSize)
	if c, name := compressionOf(head); err == nil && c != None {
		return unsupported(fmt.Sprintf("%s within %s", name, a.Compression))
	}
	var e *Error
	if a.Compression != None && errors.As(err, &e) {
		e.Found = fmt.Sprintf("%s, after %s decompression", e.Found, a.Compression)
	}
	return err
}

// peek returns the first bytes of a stream, fewer only when it is shorter.
func peek(r *bufio.Reader) ([]byte, error) {
	head, err := r.Peek(headSize)
	if err == io.EOF {
		err = nil
	}
	return head, err
}

// readTar reads the index of an uncompressed tar.
func (a *Archive) readTar(ctx context.Context, r io.ReaderAt, size int64) error {
	t, err := index(ctx, r, size, tableBudget)
	if err != nil {
		return err
	}
	_, layout := t.members[ocispec.ImageLayoutFile]
	_, oci := t.members[ocispec.ImageIndexFile]
	_, docker := t.members[manifestFile]
	switch {
	case layout && oci:
		return a.readOCI(ctx, t)
	case docker:
		return a.readDocker(ctx, t)
	case t.unterminated:
		return t.absent(ocispec.ImageIndexFile)
	}
	return t.survey.verdict()
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
