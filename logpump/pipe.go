package logpump

import (
	"context"
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// pipe is a FIFO or a pipe as a source. It reads until the context ends, or until the
// end of the file.
type pipe struct {
	ctx  context.Context
	file *os.File
	stop func() bool
}

// pipeSize is how much a pipe should hold, in bytes: the most that a user may set by default (pipe(7)).
const pipeSize = 1 << 20

func newPipe(ctx context.Context, f *os.File) *pipe {
	enlarge(f)
	stop := context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })
	return &pipe{ctx: ctx, file: f, stop: stop}
}

// enlarge makes a pipe hold more, so that writers wait less for a pump that has no CPU. Where that is
// not allowed, it stays as it is.
func enlarge(f *os.File) {
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		if size, err := unix.FcntlInt(fd, unix.F_GETPIPE_SZ, 0); err == nil && size < pipeSize {
			_, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pipeSize)
		}
	})
}

func (p *pipe) read(b []byte, deadline time.Time) (int, error) {
	if err := p.file.SetReadDeadline(deadline); err != nil {
		return 0, err
	}
	// The end of the context sets a deadline of its own, which the line above may
	// have undone: so look here, behind it.
	if p.ctx.Err() != nil {
		return 0, io.EOF
	}
	n, err := p.file.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) && p.ctx.Err() != nil {
		err = io.EOF
	}
	return n, err
}

func (p *pipe) poll(b []byte) (int, error) {
	raw, err := p.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	var n int
	var failed error
	err = raw.Control(func(fd uintptr) { n, failed = readNow(int(fd), b) })
	return max(n, 0), errors.Join(err, failed)
}

// left is the pipe's capacity, twice.
func (p *pipe) left() int {
	capacity := 1 << 20
	if raw, err := p.file.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			if n, err := unix.FcntlInt(fd, unix.F_GETPIPE_SZ, 0); err == nil {
				capacity = n
			}
		})
	}
	return 2 * capacity
}

func (p *pipe) close() { p.stop() }

// readNow reads what is there; 0 means that nothing is.
func readNow(fd int, buf []byte) (int, error) {
	if len(buf) == 0 {
		return 0, nil
	}
	for {
		n, err := unix.Read(fd, buf)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EAGAIN):
			return 0, nil
		}
		return n, err
	}
}
