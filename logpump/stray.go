package logpump

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// stray is a regular file that was written in the FIFO's place, as a source. It ends when
// all of it is read and nobody writes to it any more, or with the context, and is then removed.
type stray struct {
	ctx    context.Context
	file   *os.File
	events *os.File // tells of writes
	stop   func() bool
}

func newStray(ctx context.Context, path string) (*stray, error) {
	events, err := newInotify(path, unix.IN_MODIFY|unix.IN_CLOSE_WRITE)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, errors.Join(err, events.Close())
	}
	stop := context.AfterFunc(ctx, func() { _ = events.SetReadDeadline(time.Unix(1, 0)) })
	return &stray{ctx, f, events, stop}, nil
}

func (s *stray) read(b []byte, deadline time.Time) (int, error) {
	for {
		idle := !s.hasWriters() // first: what was written before the last close is read below
		n, err := s.file.Read(b)
		if n > 0 || err != nil && !errors.Is(err, io.EOF) {
			return n, err
		}
		if idle {
			return 0, io.EOF
		}
		if err := s.events.SetReadDeadline(deadline); err != nil {
			return 0, err
		}
		if s.ctx.Err() != nil {
			return 0, io.EOF
		}
		if _, err := s.events.Read(make([]byte, 4096)); err != nil && s.ctx.Err() == nil {
			return 0, err
		}
	}
}

// hasWriters reports whether the file is open for writing anywhere: only then is a read
// lease refused with EAGAIN (F_SETLEASE(2const)). Where there are no leases, it is taken for finished.
func (s *stray) hasWriters() bool {
	raw, err := s.file.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) {
		if _, err = unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_RDLCK); err == nil {
			_, err = unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_UNLCK)
		}
	})
	return errors.Is(err, unix.EAGAIN)
}

func (s *stray) poll(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	n, err := s.file.Read(b)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

func (s *stray) left() int { return 2 << 20 }

func (s *stray) close() {
	s.stop()
	_ = os.Remove(s.file.Name())
	_ = s.file.Close()
	_ = s.events.Close()
}
