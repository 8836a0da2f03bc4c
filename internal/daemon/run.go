package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"seedbed/logpump"
)

// Run runs containerd until it ends or ctx does, and returns when it is gone and everything
// that it and runsc have logged is with the sinks. When ctx ends it is sent TERM once, and KILL when
// it has not stopped within StopTimeout; processes that containerd has started are never signalled.
//
// It returns nil after a stop that ctx asked for, *[ExitError] when containerd ended
// otherwise (with code 0 too), *[StartTimeout], or, before anything is started,
// *[PreflightError].
func Run(ctx context.Context, o Options) error {
	o = o.withDefaults()
	o.Status("checking what containerd needs")
	if err := preflight(o); err != nil {
		return err
	}
	fifo, err := openFIFO(o)
	if err != nil {
		return err
	}
	if fifo != nil {
		defer fifo.Close()
	}
	output, input, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make a pipe for containerd's log: %w", err)
	}
	defer output.Close()

	// The pumps end after the child, not with ctx: its last words count.
	pumpsCtx, stopPumps := context.WithCancel(context.WithoutCancel(ctx))
	defer stopPumps()
	log := &lastLine{Sink: o.Log}
	g, gctx := errgroup.WithContext(ctx)
	startPump(pumpsCtx, g, output, "CONTAINERD_", log)
	startPump(pumpsCtx, g, fifo, "RUNSC_", o.RunscLog)

	child, err := startChild(g, o, input)
	_ = input.Close() // the child has its own
	if err != nil {
		stopPumps()
		return errors.Join(fmt.Errorf("start containerd: %w", err), g.Wait())
	}
	s := supervisor{Options: o, child: child}
	s.run(gctx, g)
	stopPumps()
	err = g.Wait()
	return errors.Join(s.verdict(log.String()), err)
}

// startPump pumps f into sink; its failure ends the group.
func startPump(ctx context.Context, g *errgroup.Group, f *os.File, prefix string, sink logpump.Sink) {
	if f == nil {
		return
	}
	g.Go(func() error {
		_, err := logpump.Pump(ctx, f, logpump.Options{FieldPrefix: prefix}, sink)
		return err
	})
}

// openFIFO opens runsc's FIFO and makes it first if it is not there; nil if
// there shall be none.
func openFIFO(o Options) (*os.File, error) {
	if o.RunscFIFOFile != nil {
		return logpump.Adopt(o.RunscFIFOFile)
	}
	if o.RunscFIFO == "" {
		return nil, nil
	}
	f, err := logpump.Open(o.RunscFIFO)
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	if err := unix.Mkfifo(o.RunscFIFO, 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, &fs.PathError{Op: "mkfifo", Path: o.RunscFIFO, Err: err}
	}
	if f, err = logpump.Open(o.RunscFIFO); err != nil {
		return nil, err
	}
	// The umask may have taken more than the mode gives.
	if err := f.Chmod(0o600); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// supervisor is the life of one child.
type supervisor struct {
	Options
	child *child

	asked    bool // the context ended
	ready    bool // the API has answered
	timedOut bool // it did not answer in time
	killed   bool // it did not stop in time
}

// run returns when the child is gone.
func (s *supervisor) run(ctx context.Context, g *errgroup.Group) {
	start, cancel := context.WithCancel(ctx)
	if s.StartTimeout > 0 {
		start, cancel = context.WithTimeout(ctx, s.StartTimeout)
	}
	defer cancel()
	answer := make(chan string, 1)
	g.Go(func() error {
		version, err := waitServing(start, s.Address)
		if err == nil {
			answer <- version
		}
		return nil
	})
	s.Status("waiting for containerd to answer at " + s.Address)
	select {
	case version := <-answer:
		s.ready = true
		s.Status(fmt.Sprintf("containerd %s answers at %s", version, s.Address))
		s.Ready()
	case <-start.Done():
		s.timedOut = ctx.Err() == nil
		s.stop()
		return
	case <-s.child.exited:
		return
	}
	select {
	case <-ctx.Done():
		s.stop()
	case <-s.child.exited:
	}
}

// stop ends the child and returns when it is gone.
func (s *supervisor) stop() {
	s.asked = true
	s.Stopping()
	s.Status("stopping containerd")
	_ = s.child.signal(syscall.SIGTERM) // an error means that it is gone already
	select {
	case <-s.child.exited:
		return
	case <-time.After(s.StopTimeout):
	}
	s.killed = true
	s.Status("killing containerd, it did not stop in time")
	_ = s.child.signal(syscall.SIGKILL)
	<-s.child.exited
}

// verdict returns what Run returns for the end that the child has come to.
func (s *supervisor) verdict(lastLine string) error {
	end := exitError(s.child, lastLine)
	end.Killed = s.killed
	switch {
	case s.timedOut:
		return &StartTimeout{Address: s.Address, After: s.StartTimeout, LastLine: lastLine}
	case !s.asked, s.killed:
		return end
	case end.ExitCode() == 0, end.Signal == syscall.SIGTERM:
		return nil
	case !s.ready:
		return nil // interrupted while it started, containerd exits with 1
	}
	return end
}
