package logpump

import (
	"errors"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// text writes records as lines.
type text struct {
	w          io.Writer
	identifier string
	buf        []byte
}

// NewText returns a sink that writes each record to w as "identifier: message",
// every line of a grouped record with the identifier. An error of w, such as a
// closed pipe, is returned by Send, and the next record is tried again. A pipe or terminal
// whose reader has stopped is [ErrBusy]. Close leaves w open.
//
// When w is the process' own standard output or standard error, whoever reads
// it may go away: the caller must have SIGPIPE notified (os/signal, "SIGPIPE"), else
// the write ends the process.
func NewText(w io.Writer, identifier string) Sink {
	return &text{w: w, identifier: cleanText(identifier)}
}

func (t *text) Send(records []Record) (int, error) {
	for i, r := range records {
		t.encode(r)
		if err := t.write(); err != nil {
			return i, err
		}
	}
	return len(records), nil
}

func (t *text) encode(r Record) {
	t.buf = t.buf[:0]
	for line := range strings.SplitSeq(r.Message, "\n") {
		t.buf = append(t.buf, t.identifier...)
		t.buf = append(t.buf, ": "...)
		t.buf = append(t.buf, line...)
		t.buf = append(t.buf, '\n')
	}
}

// pipeRoom is what a pipe that is ready takes without waiting (pipe(7), PIPE_BUF).
const pipeRoom = 4096

// write writes the record in pieces that a pipe takes at once. A reader that stops in the
// middle of a record is waited for a little longer.
func (t *text) write() error {
	f, ok := t.w.(*os.File)
	if !ok {
		_, err := t.w.Write(t.buf)
		return err
	}
	for rest, first := t.buf, true; len(rest) > 0; first = false {
		wait := sendTimeout
		if !first {
			wait = 50 * sendTimeout
		}
		if !ready(f, wait) {
			if first {
				return ErrBusy
			}
			return os.ErrDeadlineExceeded
		}
		n, err := f.Write(rest[:min(len(rest), pipeRoom)])
		if err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// ready waits until f can be written to, or its reader is gone; anything but a pipe or
// a terminal always can.
func ready(f *os.File, wait time.Duration) bool {
	raw, err := f.SyscallConn()
	if err != nil {
		return true
	}
	n := 1
	_ = raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		for {
			n, err = unix.Poll(fds, int(wait.Milliseconds()))
			if !errors.Is(err, unix.EINTR) {
				return
			}
		}
	})
	return err != nil || n > 0
}

func (t *text) Close() error { return nil }
