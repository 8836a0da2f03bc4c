package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync/atomic"
	"syscall"
)

// copyBuffer is the size in bytes of the buffers with which data is copied.
const copyBuffer = 1 << 20

// watched is a file as it was when it was opened.
type watched struct {
	path string
	info fs.FileInfo
}

// unchanged compares the file with what is there now.
func (w watched) unchanged() error {
	now, err := os.Stat(w.path)
	if err != nil {
		return w.gone(err)
	}
	return w.same(now)
}

// gone says what it means that the file cannot be looked at any more.
func (w watched) gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return changed("the file was removed")
	}
	return err
}

// same compares the file with another look at it. Its size, modification time
// and identity count; the change time does not, for a chmod or a second hard
// link does no harm.
func (w watched) same(now fs.FileInfo) error {
	switch {
	case !os.SameFile(w.info, now):
		return changed("the file was replaced by another")
	case now.Size() != w.info.Size():
		err := changed(fmt.Sprintf("the file has %d bytes now", now.Size()))
		err.Expected = fmt.Sprintf("%d bytes as when it was opened", w.info.Size())
		return err
	case !now.ModTime().Equal(w.info.ModTime()):
		return changed("the file was modified")
	}
	return nil
}

func changed(found string) *Error {
	return &Error{
		Code: CodeChangedWhileReading, Found: found, Expected: "the file that was opened",
		Advice: "write bundles under another name and rename them when they are complete",
	}
}

// open opens a regular file or a directory for reading and refuses all else
// without opening it: a FIFO would block, a device may act on it.
func open(path string) (*os.File, watched, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, watched{}, err
	}
	if err := readable(info); err != nil {
		return nil, watched{}, err
	}
	// What lies there may have become a FIFO since: O_NONBLOCK, and look again.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, watched{}, err
	}
	if info, err = f.Stat(); err == nil {
		err = readable(info)
	}
	if err != nil {
		f.Close()
		return nil, watched{}, err
	}
	return f, watched{path: path, info: info}, nil
}

func readable(info fs.FileInfo) error {
	if info.Mode().IsRegular() || info.IsDir() {
		return nil
	}
	return &Error{Code: CodeNotAnImage, Found: kindName(info.Mode()), Expected: "a regular file or an OCI layout directory"}
}

func kindName(m fs.FileMode) string {
	switch {
	case m&fs.ModeNamedPipe != 0:
		return "a FIFO"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	case m.IsDir():
		return "a directory"
	case m.IsRegular():
		return "a regular file"
	default:
		return "a special file"
	}
}

// counted counts what is read through it. It is good for several goroutines.
type counted struct {
	r io.ReaderAt
	n *atomic.Int64
}

func (c counted) ReadAt(p []byte, off int64) (int, error) {
	n, err := c.r.ReadAt(p, off)
	c.n.Add(int64(n))
	return n, err
}

// countedReader is counted for a stream.
type countedReader struct {
	r io.Reader
	n *atomic.Int64
}

func (c countedReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// cancelable ends reading with the context's error when ctx is done.
type cancelable struct {
	ctx context.Context
	r   io.Reader
}

func (c cancelable) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// spoolFile makes a temporary file in dir that has no name any more, so that
// nothing stays behind however the process ends.
func spoolFile(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, "seedbed-archive-*")
	if err != nil {
		return nil, &Error{
			Code: CodeOf(err), Found: "no place for the decompressed archive", Err: err,
			Advice: "set TMPDIR to a directory that is there and can be written",
		}
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// spool copies r into a temporary file in dir.
func spool(ctx context.Context, r io.Reader, dir string) (*os.File, int64, error) {
	f, err := spoolFile(dir)
	if err != nil {
		return nil, 0, err
	}
	// The struct hides os.File's ReadFrom, which would not use the buffer.
	n, err := io.CopyBuffer(struct{ io.Writer }{f}, cancelable{ctx, r}, make([]byte, copyBuffer))
	if err != nil {
		f.Close()
		return nil, 0, spoolError(err, dir, n)
	}
	return f, n, nil
}

func spoolError(err error, dir string, n int64) error {
	if CodeOf(err) != CodeNoSpace {
		return err
	}
	if dir == "" {
		dir = os.TempDir()
	}
	return &Error{
		Code: CodeNoSpace, Found: fmt.Sprintf("no space in %s after %d bytes of the decompressed archive", quote(dir), n),
		Advice: "set TMPDIR to a directory with more room, or keep the archive uncompressed", Err: err,
	}
}
