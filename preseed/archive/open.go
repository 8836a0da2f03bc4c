package archive

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Open opens the archive at path with the zero [Options].
func Open(ctx context.Context, path string) (*Archive, error) { return Options{}.Open(ctx, path) }

// OpenStream reads an archive from r to its end, standard input say, with the
// zero [Options] but for the directory of the temporary file.
func OpenStream(ctx context.Context, r io.Reader, spoolDir string) (*Archive, error) {
	return Options{SpoolDir: spoolDir}.OpenStream(ctx, r)
}

// Options say what is done with archives that have to be read from begin to
// end: compressed ones and streams.
type Options struct {
	// SpoolDir is where what cannot be kept in memory is written meanwhile, in
	// a file without a name. "" is [os.TempDir].
	SpoolDir string
	// Keep takes the large members of a stream while it is read. They cannot
	// be read from the archive then. Without it they are spooled.
	Keep Keep
	// Ledger returns what [Archive.Ledger] made of the archive when it was
	// read before, or nil. It is asked only for what is costly to read. nil
	// means that there is none.
	Ledger func() []byte
	// Files bounds how many archives that were opened with it have their file
	// open. nil means that the file stays open until the archive is closed.
	Files *Files
}

// Open reads the index of the archive at path: a regular file, or a directory
// that is an OCI image layout. It never blocks on a FIFO, socket or device.
// Uncompressed files are walked from header to header without reading a blob
// (but for compressed layers of docker archives whose names do not tell their
// digests); compressed ones are read from begin to end, once, unless the ledger
// knows them.
//
// What the archive is to blame for comes as an [*Error]; what the system says
// (no such file, no permission) as its *fs.PathError. See [CodeOf].
func (o Options) Open(ctx context.Context, path string) (*Archive, error) {
	f, w, err := open(path)
	if err != nil {
		return nil, err
	}
	if w.info.IsDir() {
		f.Close()
		return openLayout(ctx, w)
	}
	if o.Files == nil {
		o.Files = NewFiles(1)
	}
	h := o.Files.adopt(f, w)
	a := &Archive{Compression: None, Size: w.info.Size(), closers: []io.Closer{h}, self: identityOf(w.info)}
	a.watch(w)
	if err := o.readFile(ctx, a, h); err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

// readFile finds out how the file is compressed and reads its index.
func (o Options) readFile(ctx context.Context, a *Archive, f io.ReaderAt) error {
	data := counted{f, &a.read}
	a.file = data
	head := make([]byte, min(headSize, a.Size))
	if _, err := io.ReadFull(io.NewSectionReader(data, 0, a.Size), head); err != nil {
		return fmt.Errorf("read: %w", err)
	}
	if err := checkHead(head, a.Size < headSize); err != nil {
		return err
	}
	a.Compression, _ = compressionOf(head)
	if a.Compression == None {
		return o.readTar(ctx, a, data)
	}
	if o.restore(a) {
		return nil
	}
	err := o.stream(ctx, a, io.NewSectionReader(data, 0, a.Size))
	if errors.Is(err, errManyMembers) {
		return o.spool(ctx, a, io.NewSectionReader(data, 0, a.Size))
	}
	return err
}

// OpenStream reads an archive from r to its end.
func (o Options) OpenStream(ctx context.Context, r io.Reader) (*Archive, error) {
	a := &Archive{Compression: None}
	if err := o.readStream(ctx, a, r); err != nil {
		a.Close()
		return nil, err
	}
	a.Size = a.read.Load()
	return a, nil
}

func (o Options) readStream(ctx context.Context, a *Archive, r io.Reader) error {
	data := bufio.NewReaderSize(countedReader{r, &a.read}, copyBuffer)
	head, err := peek(data)
	if err != nil {
		return err
	}
	if err := checkHead(head, len(head) < headSize); err != nil {
		return err
	}
	a.Compression, _ = compressionOf(head)
	return o.stream(ctx, a, data)
}

// stream reads the index of what can be read only once, and keeps its members.
func (o Options) stream(ctx context.Context, a *Archive, r io.Reader) error {
	plain, err := a.decompress(ctx, r)
	if err != nil {
		return err
	}
	ahead := readAhead(ctx, plain)
	defer ahead.Close()
	data := bufio.NewReaderSize(ahead, copyBuffer)
	if err := a.checkInner(data); err != nil {
		return err
	}
	t, err := o.streamTable(ctx, a, data)
	if err != nil {
		return err
	}
	a.costly = true
	return a.readTable(ctx, t)
}

// decompress returns what r is around, without taking more of r than it needs
// after the end of ctx.
func (a *Archive) decompress(ctx context.Context, r io.Reader) (io.ReadCloser, error) {
	return decompress(cancelable{ctx, r}, a.Compression)
}

// spool decompresses r into a temporary file and reads the index of that: for
// a file whose members are so many that its index has to be read again and again.
func (o Options) spool(ctx context.Context, a *Archive, r io.Reader) error {
	plain, err := a.decompress(ctx, r)
	if err != nil {
		return err
	}
	defer plain.Close()
	f, size, err := spool(ctx, plain, o.SpoolDir)
	if err != nil {
		return err
	}
	a.closers = append(a.closers, f)
	t, err := index(ctx, f, size, tableBudget)
	if err != nil {
		return err
	}
	return a.readTable(ctx, t)
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
func (o Options) readTar(ctx context.Context, a *Archive, r io.ReaderAt) error {
	t, err := index(ctx, r, a.Size, tableBudget)
	if err != nil {
		return err
	}
	if t.docker() && o.restore(a) {
		return nil
	}
	return a.readTable(ctx, t)
}

// readTable makes images of an index.
func (a *Archive) readTable(ctx context.Context, t *table) error {
	_, layout := t.members[ocispec.ImageLayoutFile]
	_, oci := t.members[ocispec.ImageIndexFile]
	switch {
	case layout && oci:
		return a.readOCI(ctx, t)
	case t.docker():
		return a.readDocker(ctx, t)
	case t.unterminated:
		return t.absent(ocispec.ImageIndexFile)
	}
	return t.survey.verdict()
}
