package archive

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
)

const (
	tarBlock  = 512
	ctxStride = 1024 // members between two looks at the context
)

// visitor is called for every member of a tar with its header and with the
// offset of its data. What it wants to keep it copies.
type visitor func(h *tar.Header, offset int64)

// walk visits the members of the tar in r, which is size bytes long, by seeking
// from header to header: archive/tar does so over an [io.Seeker]. It reports
// whether the end mark (two blocks of NULs) is absent, as it is in a tar that
// was cut off between two members.
func walk(ctx context.Context, r io.ReaderAt, size int64, visit visitor) (unterminated bool, err error) {
	data := io.NewSectionReader(r, 0, size)
	tr := tar.NewReader(data)
	var last struct {
		name         string
		offset, size int64
	}
	for n := 0; ; n++ {
		if n%ctxStride == 0 && ctx.Err() != nil {
			return false, ctx.Err()
		}
		h, err := tr.Next()
		switch {
		case err == io.EOF:
			return size < last.offset+padded(last.size)+2*tarBlock, nil
		case errors.Is(err, io.ErrUnexpectedEOF):
			return true, cutOff(last.name, last.offset, last.size, size)
		case errors.Is(err, tar.ErrHeader):
			return false, noHeader(last.name, last.offset+padded(last.size), err)
		case err != nil:
			return false, err
		}
		if last.offset, err = data.Seek(0, io.SeekCurrent); err != nil {
			return false, err
		}
		last.name, last.size = h.Name, h.Size
		visit(h, last.offset)
	}
}

func padded(n int64) int64 { return (n + tarBlock - 1) / tarBlock * tarBlock }

func noHeader(member string, offset int64, err error) *Error {
	return &Error{
		Code: CodeNotAnImage, Member: member, Found: fmt.Sprintf("no tar header follows this member, near byte %d", offset),
		Expected: "a tar archive", Advice: "the archive is damaged: fetch or write it again", Err: err,
	}
}

func cutOff(member string, offset, length, size int64) *Error {
	e := &Error{
		Code: CodeTruncated, Member: member, Found: fmt.Sprintf("the archive ends at byte %d", size),
		Advice: "it was not copied to its end: fetch or write it again",
	}
	if length > size-offset {
		e.Expected = fmt.Sprintf("%d bytes of this member from byte %d on", length, offset)
	} else {
		e.Expected = fmt.Sprintf("another header after this member, at byte %d", offset+padded(length))
	}
	return e
}

// cleanName is a member's name as it is looked up, or "" for one that must not
// count: absolute, leaving the archive, or longer than a path can be.
func cleanName(raw string) string {
	if len(raw) > maxName || strings.HasPrefix(raw, "/") {
		return ""
	}
	name := path.Clean(raw)
	if name == "." || name == ".." || strings.HasPrefix(name, "../") || leaves(raw) {
		return ""
	}
	return name
}

// leaves says whether a name has a ".." element, even one that stays inside.
func leaves(raw string) bool {
	for part := range strings.SplitSeq(raw, "/") {
		if part == ".." {
			return true
		}
	}
	return false
}
