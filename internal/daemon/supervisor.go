package daemon

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// extendEvery is how often a start or a stop that takes long asks for more time,
	// extendBy how much it asks for: a machine under load may be late.
	extendEvery = 10 * time.Second
	extendBy    = 30 * time.Second
)

// supervisor is the life of one child.
type supervisor struct {
	Options
	child *child
	cri   bool // the CRI plugin is configured
	// reading is closed once the log FIFO is read.
	reading <-chan struct{}

	asked    bool  // the context ended
	ready    bool  // the API has answered
	timedOut bool  // it did not answer in time
	killed   bool  // it did not stop in time
	unfit    error // why it can never become ready
}

// run returns when the child is gone.
func (s *supervisor) run(ctx context.Context, g *errgroup.Group) {
	life, end := context.WithCancel(ctx)
	defer end()
	g.Go(func() error { s.relay(life); return nil })
	if !s.start(life, g) {
		return
	}
	g.Go(func() error { s.watch(life); return nil })
	select {
	case <-ctx.Done():
		end()
		s.stop()
	case <-s.child.exited:
	}
}

// start waits until containerd is ready; false when the child is gone instead.
func (s *supervisor) start(ctx context.Context, g *errgroup.Group) bool {
	start, cancel := context.WithCancel(ctx)
	if s.StartTimeout > 0 {
		start, cancel = context.WithTimeout(ctx, s.StartTimeout)
	}
	defer cancel()
	type answer struct {
		version string
		err     error
	}
	answers := make(chan answer, 1)
	g.Go(func() error {
		version, err := s.waitReady(start)
		answers <- answer{version, err}
		return nil
	})
	extend := s.extending()
	defer extend.Stop()
	for {
		select {
		case a := <-answers:
			if a.err == nil {
				s.ready = true
				s.Status(fmt.Sprintf("containerd %s answers at %s", a.version, s.Address))
				s.Ready()
				return true
			}
			if start.Err() != nil {
				s.timedOut = ctx.Err() == nil
			} else {
				s.unfit = a.err
			}
			s.stop()
			return false
		case <-extend.C:
			s.Extend(extendBy)
		case <-s.child.exited:
			return false
		}
	}
}

// extending asks for more time at once and returns when to ask again. The timeouts bound it: they
// end what is waited for.
func (s *supervisor) extending() *time.Ticker {
	s.Extend(extendBy)
	return time.NewTicker(extendEvery)
}

// stop ends the child and returns when it is gone.
func (s *supervisor) stop() {
	s.asked = true
	s.Stopping()
	s.Status("stopping containerd")
	extend := s.extending()
	defer extend.Stop()
	_ = s.child.signal(syscall.SIGTERM) // an error means that it is gone already
	for late := time.After(s.StopTimeout); ; {
		select {
		case <-s.child.exited:
			return
		case <-extend.C:
			s.Extend(extendBy)
		case <-late:
			s.killed = true
			s.Status("killing containerd, it did not stop in time")
			_ = s.child.signal(syscall.SIGKILL)
		}
	}
}

// relay passes signals on to the child, until the context ends.
func (s *supervisor) relay(ctx context.Context) {
	for {
		select {
		case signal := <-s.Signals:
			_ = s.child.signal(signal)
		case <-s.child.exited:
			return
		case <-ctx.Done():
			return
		}
	}
}

// verdict returns what Run returns for the end that the child has come to.
func (s *supervisor) verdict(words *lastWords) error {
	end := exitError(s.child, words)
	end.Killed = s.killed
	switch {
	case s.unfit != nil:
		return s.unfit
	case s.timedOut:
		return &StartTimeout{Address: s.Address, After: s.StartTimeout, LastWords: words.of(s.StartTimeout + recently)}
	case !s.asked, s.killed:
		return end
	case end.Signal == 0 && end.Code == 0, end.Signal == syscall.SIGTERM:
		return nil
	case !s.ready:
		return nil // interrupted while it started, containerd exits with 1
	}
	return end
}

// waitReady returns containerd's version as soon as it and, where it is configured, its CRI
// plugin answer, and the log FIFO is read.
func (s *supervisor) waitReady(ctx context.Context) (string, error) {
	s.Status("waiting for the log FIFO to be read")
	select {
	case <-s.reading:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	s.Status("waiting for containerd to answer at " + s.Address)
	version, err := waitServing(ctx, s.Address)
	if err != nil || !s.cri {
		return version, err
	}
	s.Status("waiting for containerd's CRI plugin")
	err = waitCRI(ctx, s.Address)
	var unfit *CRIError
	if errors.As(err, &unfit) {
		s.Status(err.Error())
	}
	return version, err
}
