package archive

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

const (
	smallMember  = 64 << 10 // bytes up to which a stream's member is kept in memory
	memoryBudget = 16 << 20 // bytes of memory for all of them
)

// Piece is a member of a stream that is too large for memory.
type Piece struct {
	Member string        // raw name
	Size   int64         // bytes
	Digest digest.Digest // what its name claims; "" when its name says nothing
}

// Keep takes a piece of a stream: it reads r to its end, and returns how to
// ask for the digest of what was read. That is asked once, when the stream was
// read to its end, and never when that fails: what goes on in the background
// meanwhile is for the caller to end. A digest other than the claimed one is
// no error; it is found again as the blob's Found.
type Keep func(ctx context.Context, p Piece, r io.Reader) (finish func() (digest.Digest, error), err error)

// piece is the data of a stream's member: all of it in memory, or its begin
// when finish says that it was kept elsewhere.
type piece struct {
	data   []byte
	finish func() (digest.Digest, error)
	found  digest.Digest
}

// errManyMembers ends the reading of a stream whose index takes more memory
// than there is for it.
var errManyMembers = &Error{
	Code: CodeNotAnImage, Found: "more members than are kept in memory", Expected: "an image archive",
	Advice: "import it from a file, uncompressed",
}

// streamer reads a tar that can be read only once.
type streamer struct {
	Options
	t      *table
	in     *position
	tar    *tar.Reader
	body   *bufio.Reader // of the current member
	memory int64         // bytes left for small members
	spool  *os.File      // nil until it is needed
	end    int64         // of the spool
	last   struct {
		name         string
		offset, size int64
	}
}

// position counts what was read.
type position struct {
	r io.Reader
	n int64
}

func (p *position) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	p.n += int64(n)
	return n, err
}

// streamTable reads a tar to its end, and what follows it, for checksums stand
// there.
func (o Options) streamTable(ctx context.Context, a *Archive, r io.Reader) (*table, error) {
	in := &position{r: r}
	s := &streamer{Options: o, t: newTable(nil, 0, tableBudget), in: in, tar: tar.NewReader(in), body: bufio.NewReaderSize(nil, headSize), memory: memoryBudget}
	err := s.walk(ctx)
	if s.spool != nil {
		a.closers = append(a.closers, s.spool)
		s.t.r = s.spool
	}
	if err != nil {
		return nil, err
	}
	s.t.size = in.n
	s.t.unterminated = in.n < s.last.offset+padded(s.last.size)+2*tarBlock
	return s.t, s.finish()
}

// finish asks for the digests of what was kept.
func (s *streamer) finish() (err error) {
	for _, m := range s.t.members {
		if m.piece == nil || m.piece.finish == nil {
			continue
		}
		if m.piece.found, err = m.piece.finish(); err != nil {
			return err
		}
	}
	return nil
}

func (s *streamer) walk(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		h, err := s.tar.Next()
		if err == io.EOF {
			_, err := io.Copy(io.Discard, s.in)
			return err
		}
		if err != nil {
			return s.broken(err)
		}
		s.last.name, s.last.offset, s.last.size = h.Name, s.in.n, h.Size
		if err := s.member(ctx, h); err != nil {
			return err
		}
	}
}

// broken says what ends a tar before its end.
func (s *streamer) broken(err error) error {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return cutOff(s.last.name, s.last.offset, s.last.size, s.in.n)
	case errors.Is(err, tar.ErrHeader):
		// The stream may be damaged, which says more than that its content is.
		if _, err := io.Copy(io.Discard, s.in); err != nil {
			return err
		}
		return noHeader(s.last.name, s.last.offset+padded(s.last.size), err)
	}
	return err
}

// member puts a member into the table and its data somewhere.
func (s *streamer) member(ctx context.Context, h *tar.Header) error {
	s.t.survey.add(h.Name)
	if !s.t.add(h, s.end) {
		return errManyMembers
	}
	name := cleanName(h.Name)
	m, known := s.t.members[name]
	if !known || m.typeflag != tar.TypeReg || memberType(h) != tar.TypeReg {
		return nil
	}
	s.body.Reset(s.tar)
	head, err := s.body.Peek(int(min(headSize, h.Size)))
	if err != nil {
		return s.broken(noEOF(err))
	}
	m.piece, err = s.place(ctx, name, h, head)
	if m.piece == nil && err == nil {
		delete(s.t.members, name)
		s.t.survey.ignore(h.Name)
		return nil
	}
	if m.piece == spooled {
		m.piece = nil
	}
	s.t.members[name] = m
	return err
}

// spooled stands for a piece that was written to the spool.
var spooled = &piece{}

// place decides where a member's data goes: small ones to memory, documents to
// the spool, for they are read again, blobs to whoever keeps them. A docker
// archive's layers may have any name. nil means nowhere.
func (s *streamer) place(ctx context.Context, name string, h *tar.Header, head []byte) (*piece, error) {
	switch {
	case h.Size <= smallMember && h.Size <= s.memory:
		return s.toMemory(h.Size)
	case s.Keep == nil, h.Size <= smallMember, s.t.wanted[name] || isDocument(head) && h.Size <= maxDocument:
		return spooled, s.toSpool(h.Size)
	case !isBlobName(name) && s.oci():
		return nil, nil
	}
	return s.toKeep(ctx, name, h, head)
}

// isDocument says whether what begins with head may be JSON.
func isDocument(head []byte) bool {
	head = bytes.TrimSpace(head)
	return len(head) > 0 && (head[0] == '{' || head[0] == '[')
}

// oci says whether the stream is known to be an OCI archive: only blobs matter then.
func (s *streamer) oci() bool {
	_, known := s.t.members[ocispec.ImageLayoutFile]
	return known
}

func (s *streamer) toMemory(size int64) (*piece, error) {
	p := &piece{data: make([]byte, size)}
	s.memory -= size
	if _, err := io.ReadFull(s.body, p.data); err != nil {
		return nil, s.broken(noEOF(err))
	}
	return p, nil
}

func (s *streamer) toSpool(size int64) (err error) {
	if s.spool == nil {
		if s.spool, err = spoolFile(s.SpoolDir); err != nil {
			return err
		}
	}
	source := &remembering{r: s.body}
	n, err := io.CopyBuffer(struct{ io.Writer }{s.spool}, source, make([]byte, min(size, copyBuffer)+1))
	s.end += n
	switch {
	case source.err != nil:
		return s.broken(source.err)
	case err != nil:
		return spoolError(err, s.SpoolDir, s.end)
	}
	return nil
}

func (s *streamer) toKeep(ctx context.Context, name string, h *tar.Header, head []byte) (*piece, error) {
	p := &piece{data: bytes.Clone(head)}
	source := &remembering{r: s.body}
	var err error
	p.finish, err = s.Keep(ctx, Piece{Member: strings.Clone(h.Name), Size: h.Size, Digest: blobDigest(name)}, source)
	switch {
	case source.err != nil:
		return nil, s.broken(source.err)
	case err != nil:
		return nil, err
	case p.finish == nil:
		return nil, fmt.Errorf("keep %s: no result", quote(h.Name))
	}
	return p, nil
}

// remembering keeps the error that reading ended with, so that it is told from
// one of writing.
type remembering struct {
	r   io.Reader
	err error
}

func (r *remembering) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if err != nil && err != io.EOF {
		r.err = err
	}
	return n, err
}

// noEOF gives the end of data where more is due its own error.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
