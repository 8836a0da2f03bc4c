package logpump

import (
	"errors"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// stream is a sink that writes records to a file or another writer, several at once.
type stream struct {
	w      io.Writer
	file   *os.File // w, if it is one that may keep a writer waiting
	atOnce int      // so many bytes are written at once, if they are whole records
	encode func(buf []byte, r Record) ([]byte, error)
	buf    []byte
	broken bool // the last write failed
}

// pipeRoom is what a pipe that is ready takes without waiting (pipe(7), PIPE_BUF).
const pipeRoom = 4096

func newStream(w io.Writer, encode func([]byte, Record) ([]byte, error)) *stream {
	s := &stream{w: w, atOnce: pipeRoom, encode: encode}
	if f, ok := w.(*os.File); ok {
		s.file = f
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			s.file, s.atOnce = nil, readSize
		}
	}
	return s
}

// NewText returns a sink that writes each record to w as lines for people:
//
//	identifier[pid]: time level: message
//
// The process, the time and the level stand there when the record has them; the level info goes
// without saying. Further lines of a grouped record have the identifier and the process alone. What else a record has
// is not written, but for that it is a piece of a longer one, "[part 2/2]", or may be there already, "[again]".
//
// An error of w, such as a closed pipe, is returned by Send, and the next record is tried again. A pipe or terminal
// whose reader has stopped is [ErrBusy]. Close leaves w open.
//
// When w is the process' own standard output or standard error, whoever reads
// it may go away: the caller must have SIGPIPE notified (os/signal, "SIGPIPE"), else
// the write ends the process.
func NewText(w io.Writer, identifier string) Sink {
	t := text{cleanText(identifier)}
	return newStream(w, t.encode)
}

func (s *stream) Send(records []Record) (int, error) {
	written := 0
	s.buf = s.buf[:0]
	for i, r := range records {
		from := len(s.buf)
		var err error
		if s.buf, err = s.encode(s.buf, r); err != nil {
			return written, err
		}
		if from == 0 || len(s.buf) <= s.atOnce && !s.broken {
			continue
		}
		if err := s.write(s.buf[:from]); err != nil {
			return written, err
		}
		written = i
		s.buf = append(s.buf[:0], s.buf[from:]...)
	}
	if err := s.write(s.buf); err != nil {
		return written, err
	}
	return len(records), nil
}

// text is the form for people.
type text struct{ identifier string }

func (t text) encode(b []byte, r Record) ([]byte, error) {
	pid, notes := "", ""
	for _, f := range r.Fields {
		switch f.Name {
		case FieldPID:
			pid = "[" + f.Value + "]"
		case FieldPart:
			notes += "[part " + f.Value + "] "
		case FieldAgain:
			notes += "[again] "
		}
	}
	head := t.identifier + pid + ": "
	b = append(b, head...)
	if !r.Time.IsZero() {
		b = r.Time.AppendFormat(b, "2006-01-02T15:04:05.000Z07:00")
		b = append(b, ' ')
	}
	b = append(b, level(r.Priority)...)
	b = append(b, notes...)
	for i, rest := 0, r.Message; ; i++ {
		line, after, more := strings.Cut(rest, "\n")
		if i > 0 {
			b = append(b, head...)
		}
		b = append(b, line...)
		b = append(b, '\n')
		if !more {
			return b, nil
		}
		rest = after
	}
}

// level is what a priority is called at the beginning of a message.
func level(priority int) string {
	switch {
	case priority <= Critical:
		return "critical: "
	case priority == Error:
		return "error: "
	case priority == Warning:
		return "warning: "
	case priority >= Debug:
		return "debug: "
	}
	return ""
}

// write writes records. Behind a failure they are written one by one, so that only what cannot be written is
// lost.
func (s *stream) write(records []byte) error {
	err := s.writePieces(records)
	s.broken = err != nil && !errors.Is(err, ErrBusy)
	return err
}

// writePieces writes records in pieces that a pipe takes at once. A reader that stops in the
// middle of them is waited for a little longer.
func (s *stream) writePieces(records []byte) error {
	if s.file == nil {
		_, err := s.w.Write(records)
		return err
	}
	for rest, first := records, true; len(rest) > 0; first = false {
		wait := sendTimeout
		if !first {
			wait = 50 * sendTimeout
		}
		if !ready(s.file, wait) {
			if first {
				return ErrBusy
			}
			return os.ErrDeadlineExceeded
		}
		n, err := s.file.Write(rest[:min(len(rest), pipeRoom)])
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

func (s *stream) Close() error { return nil }
