package logpump

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// readSize is how much is read at once: what a pipe holds by default (pipe(7)).
	readSize = 64 << 10
	// batchSize is how many records are handed to the sink at once.
	batchSize = 64
	// reportEvery is the least time between two calls of Options.Report.
	reportEvery = time.Second
	// gatherFor is how long a busy writer is left alone between two reads, so that each read and
	// each send has many records. A pipe of the default size takes 60 MB/s then.
	gatherFor = time.Millisecond
)

// Pump reads records from f and hands them to s until ctx ends, or until the end
// of the file, which a FIFO of [Open] never reaches. Then it takes what is left in f,
// flushes a last line that has no newline, and returns; f and s stay open. While nothing is written
// it sleeps in the poller and wakes up for nothing.
//
// A sink that refuses a record does not stop the pump, it is counted. While the sink is busy, the pump
// goes on reading and keeps Options.Backlog bytes; then it drops the oldest records, and
// says how many in an entry of its own: a writer must never be held up because nobody reads its log.
// The error is nil unless reading failed; the end of ctx is no error.
func Pump(ctx context.Context, f *os.File, o Options, s Sink) (Counters, error) {
	o = o.withDefaults()
	t := newTally(o.Report)
	err := pumpSource(ctx, newPipe(ctx, f), o, s, t)
	t.tell(true)
	if err != nil {
		err = fmt.Errorf("read log %q: %w", f.Name(), err)
	}
	return t.counters(), err
}

// source is where a pump's bytes come from.
type source interface {
	// read waits for bytes until the deadline, if that is not zero (os.ErrDeadlineExceeded), or
	// until the end: of the file, or of the context (io.EOF).
	read(p []byte, deadline time.Time) (int, error)
	// poll reads what is there without waiting; 0 if nothing is.
	poll(p []byte) (int, error)
	// left is how many bytes may still be read once the end has come.
	left() int
	close()
}

// pumpSource pumps one stream to its end.
func pumpSource(ctx context.Context, src source, o Options, s Sink, t *tally) error {
	defer src.close()
	mem, err := newStore(o.Spool, 2*o.Backlog)
	if err != nil {
		return err
	}
	p := &pump{
		Options: o, ctx: ctx, source: src, sink: s, tally: t, store: mem,
		split:  splitter{format: o.Format, max: o.MaxRecord},
		parser: parser{format: o.Format, prefix: o.FieldPrefix, now: time.Now},
	}
	p.takeOver()
	err = p.run()
	if err == nil {
		err = p.drain()
	}
	p.finish()
	return errors.Join(err, mem.close())
}

// pump is one stream on its way to the sink. It is used by one goroutine.
type pump struct {
	Options
	ctx    context.Context
	source source
	sink   Sink
	tally  *tally
	store  *store
	split  splitter
	parser parser

	batch    []Record
	places   []splitter // where each record of the stream in the batch begins, and where the last ends
	begins   bool       // the batch is the first piece of a record that is too long
	notice   lost       // what is to be told before the next record
	again    int        // how many of the next records may be in the log already
	overrun  bool       // more memory was used than usual
	last     time.Time  // when something was read last
	patience time.Time  // when a busy sink is given up at the end; zero before the end
}

// takeOver begins with what a predecessor left in the spool.
func (p *pump) takeOver() {
	start, end, doubt := p.store.recover()
	p.split.buf, p.split.off, p.again = p.store.bytes[:end], start, doubt
}

// run reads until the source ends. A deadline is only set while something waits for
// more to come, so that an idle pump has no timer.
func (p *pump) run() error {
	p.emit(false)
	for {
		deadline, flush := p.deadline()
		n, err := p.source.read(p.room(), deadline)
		p.took(n)
		p.gather(n)
		switch {
		case err == nil:
			p.emit(false)
		case errors.Is(err, os.ErrDeadlineExceeded):
			p.emit(flush)
		case errors.Is(err, io.EOF):
			return nil
		default:
			return err
		}
		p.tally.tell(false)
	}
}

// gather waits a moment behind a read of few bytes, if the one before it was a moment ago, and
// takes what was written meanwhile. The first record after a pause is not held up.
func (p *pump) gather(n int) {
	if n <= 0 {
		return
	}
	now := time.Now()
	busy := now.Sub(p.last) < gatherFor
	p.last = now
	if !busy || n >= readSize/2 {
		return
	}
	pause(gatherFor)
	more, _ := p.source.poll(p.room()) // an error comes again with the next read
	p.took(more)
	p.last = time.Now()
}

// pause sleeps outside of Go's poller, which the FIFO would wake up with every write.
func pause(d time.Duration) {
	t := unix.NsecToTimespec(d.Nanoseconds())
	_ = unix.Nanosleep(&t, nil) // a signal may end it early
}

// deadline returns until when to wait for more, zero for as long as it takes, and
// whether the pending record is to be taken as it is then.
func (p *pump) deadline() (at time.Time, flush bool) {
	switch {
	case p.split.complete():
		return time.Now().Add(p.Group), true
	case p.split.pending():
		return time.Now().Add(p.Idle), true
	}
	return p.tally.due(), false
}

// drain takes what is left without waiting. It goes on while a writer writes more, but not for ever.
func (p *pump) drain() error {
	for left := p.source.left(); left > 0; {
		n, err := p.source.poll(p.room())
		if n <= 0 {
			return err
		}
		left -= n
		p.took(n)
		p.emit(false)
	}
	return nil
}

// finish hands over what is pending. What the sink does not take in time stays in the
// spool, or is dropped.
func (p *pump) finish() {
	p.emit(true)
	if p.store.file == nil {
		p.drop(0)
	}
}

// room returns where to read to. The bytes that are pending are moved to the beginning
// if they do not overlap their new place.
func (p *pump) room() []byte {
	s := &p.split
	pending, end := len(s.buf)-s.off, len(s.buf)
	if s.off > 0 && pending <= s.off && (pending <= batchSize || cap(s.buf)-end < readSize) {
		p.store.move(s.off, end)
		s.buf, s.off = p.store.bytes[:pending], 0
		if p.overrun && pending == 0 {
			p.store.release()
			p.overrun = false
		}
	}
	return s.buf[len(s.buf):min(len(s.buf)+readSize, cap(s.buf))]
}

// took says that n bytes were read into the room.
func (p *pump) took(n int) {
	if n <= 0 {
		return
	}
	p.split.buf = p.split.buf[:len(p.split.buf)+n]
	p.store.setSpan(p.split.off, len(p.split.buf))
	p.tally.bytes.Add(uint64(n))
}
