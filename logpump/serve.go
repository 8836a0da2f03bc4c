package logpump

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sync/errgroup"
)

// Serve pumps the FIFO at path into s until ctx ends, like [Pump], and sees to it that
// there is one: it makes the FIFO if it is absent, with mode 0600, and when it is removed or
// another file is put into its place, it puts that right and pumps what is in there too. It learns of
// that from the kernel (inotify(7)) and does not look for it.
//
// What stands at path at the beginning must be a FIFO or nothing, as for [Open]. Held are
// ends of it that are open already, as a service manager passes them; Serve closes them.
func Serve(ctx context.Context, path string, held []*os.File, o Options, s Sink) (Counters, error) {
	o = o.withDefaults()
	g, ctx := errgroup.WithContext(ctx)
	v := &server{path: path, Options: o, sink: share(s), tally: newTally(o.Report), group: g, ctx: ctx}
	err := v.start(held)
	if err != nil {
		err = errors.Join(err, v.abandon())
	} else if err = g.Wait(); err != nil {
		err = fmt.Errorf("serve log FIFO %q: %w", path, err)
	}
	v.tally.tell(true)
	return v.tally.counters(), err
}

// server is the FIFO at a path and all that has stood in its place. It is used by one
// goroutine, beside the pumps.
type server struct {
	Options
	path  string
	sink  Sink
	tally *tally
	group *errgroup.Group
	ctx   context.Context

	known []os.FileInfo // the FIFOs that are pumped
	mode  os.FileMode   // of the first
	owner owner         // likewise
}

// start opens the FIFO, begins to pump it, and begins to watch over its place.
func (v *server) start(held []*os.File) error {
	v.mode, v.owner = 0o600, currentOwner()
	watch, err := newWatch(v.path)
	if err != nil {
		closeAll(held)
		return err
	}
	for i, f := range held {
		if err := v.adopt(f); err != nil {
			closeAll(held[i+1:])
			return errors.Join(err, watch.Close())
		}
	}
	if err := v.settle(); err != nil {
		return errors.Join(err, watch.Close())
	}
	v.group.Go(func() error { return v.guard(watch) })
	return nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// abandon ends the pumps that a start that failed had begun.
func (v *server) abandon() error {
	ended := errors.New("the start failed")
	v.group.Go(func() error { return ended })
	if err := v.group.Wait(); !errors.Is(err, ended) {
		return err
	}
	return nil
}

// adopt pumps a FIFO that was passed to this process.
func (v *server) adopt(f *os.File) error {
	own, err := Adopt(f)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Close(); err != nil {
		return errors.Join(err, own.Close())
	}
	return v.pump(own, false)
}

// pump begins to pump a FIFO, unless it is pumped already. The first has the spool.
func (v *server) pump(f *os.File, opened bool) error {
	info, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	if v.knows(info) {
		return f.Close()
	}
	if opened {
		v.Opened(f)
	}
	o := v.Options
	if len(v.known) == 0 {
		v.mode, v.owner = info.Mode().Perm(), ownerOf(info)
	} else {
		o.Spool = ""
	}
	v.known = append(v.known, info)
	v.group.Go(func() error {
		err := pumpSource(v.ctx, newPipe(v.ctx, f), o, v.sink, v.tally)
		return errors.Join(err, f.Close())
	})
	return nil
}

func (v *server) knows(info os.FileInfo) bool {
	for _, k := range v.known {
		if os.SameFile(k, info) {
			return true
		}
	}
	return false
}

// say puts a record of the server's own into the log.
func (v *server) say(priority int, message string) {
	_, _ = v.sink.Send([]Record{{Priority: priority, Message: cleanText(message)}})
}

// share lets several pumps use one sink.
func share(s Sink) Sink {
	own := &shared{Sink: s}
	if m, ok := s.(marker); ok {
		return &sharedMarker{shared: own, marker: m}
	}
	return own
}

type shared struct {
	mu sync.Mutex
	Sink
}

func (s *shared) Send(r []Record) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Sink.Send(r)
}

type sharedMarker struct {
	*shared
	marker marker
}

func (s *sharedMarker) sendMarked(r []Record, marks []message) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.marker.sendMarked(r, marks)
}
