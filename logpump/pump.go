package logpump

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// readSize is how much is read at once: what a pipe holds by default (pipe(7)).
const readSize = 64 << 10

// Pump reads records from f and hands them to s until ctx ends, or until the end
// of the file, which a FIFO of [Open] never reaches. Then it takes what is left in f,
// flushes a last line that has no newline, and returns; f and s stay open. While nothing is written
// it sleeps in the poller and wakes up for nothing.
//
// A sink that refuses a record does not stop the pump, it is counted: a writer
// must never be held up because nobody reads its log. The error is nil unless
// reading failed; the end of ctx is no error.
func Pump(ctx context.Context, f *os.File, o Options, s Sink) (Counters, error) {
	o = o.withDefaults()
	p := &pump{
		file: f, sink: s, idle: o.Idle,
		split:  splitter{format: o.Format, max: o.MaxRecord},
		parser: parser{format: o.Format, prefix: o.FieldPrefix, now: time.Now},
		buf:    make([]byte, readSize),
	}
	stop := context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()

	err := p.run(ctx)
	if err == nil {
		err = p.drain()
	}
	p.emit(true)
	if err != nil {
		err = fmt.Errorf("read log %q: %w", f.Name(), err)
	}
	return p.count, err
}

type pump struct {
	file   *os.File
	sink   Sink
	idle   time.Duration
	split  splitter
	parser parser
	buf    []byte
	count  Counters
}

// run reads until ctx or the file ends. A deadline is only set while the end of a
// record is missing, so that an idle pump has no timer.
func (p *pump) run(ctx context.Context) error {
	for {
		var deadline time.Time
		if p.split.pending() {
			deadline = time.Now().Add(p.idle)
		}
		if err := p.file.SetReadDeadline(deadline); err != nil {
			return err
		}
		// The end of ctx sets a deadline of its own, which the line above may have
		// undone: so look here, behind it.
		if ctx.Err() != nil {
			return nil
		}
		n, err := p.file.Read(p.buf)
		p.take(n)
		switch {
		case err == nil:
			p.emit(false)
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			p.emit(true)
		default:
			return err
		}
	}
}

// drain takes what is in the pipe without waiting. It goes on while a writer
// fills it again, but not for ever: at most the pipe's capacity, twice.
func (p *pump) drain() error {
	raw, err := p.file.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		capacity, err := unix.FcntlInt(fd, unix.F_GETPIPE_SZ, 0)
		if err != nil {
			capacity = 1 << 20
		}
		for left := 2 * capacity; left > 0; {
			n, err := readNow(int(fd), p.buf)
			if n <= 0 {
				failed = err
				return
			}
			left -= n
			p.take(n)
			p.emit(false)
		}
	})
	return errors.Join(err, failed)
}

// readNow reads what is there; 0 means that nothing is.
func readNow(fd int, buf []byte) (int, error) {
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

func (p *pump) take(n int) {
	p.count.Bytes += uint64(n)
	p.split.write(p.buf[:n])
}

// emit hands the finished records to the sink, and with flush the unfinished one too.
func (p *pump) emit(flush bool) {
	for {
		raw, ok := p.split.next(flush)
		if !ok {
			return
		}
		if raw.part == 1 {
			p.count.Split++
		}
		p.count.Records++
		if err := p.sink.Send(p.parser.parse(raw)); err != nil {
			p.count.Dropped++
		}
	}
}
