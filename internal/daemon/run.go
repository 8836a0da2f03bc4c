package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sync/errgroup"

	"seedbed/logpump"
)

// Run runs containerd until it ends or ctx does, and returns when it is gone and everything
// that it and runsc have logged is with the sinks. When ctx ends it is sent TERM once, and KILL when
// it has not stopped within StopTimeout; processes that containerd has started are never signalled.
//
// It returns nil after a stop that ctx asked for, *[ExitError] when containerd ended
// otherwise (with status 0 too), *[StartTimeout], *[CRIError], or, before anything is started,
// *[PreflightError].
func Run(ctx context.Context, o Options) error {
	o = o.withDefaults()
	o.Status("checking what containerd needs")
	if err := preflight(o); err != nil {
		return err
	}
	cri, err := wantsCRI(o)
	if err != nil {
		return err
	}
	output, input, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make a pipe for containerd's log: %w", err)
	}
	defer output.Close()

	// The pumps end after the child, not with ctx: its last words count.
	pumpsCtx, stopPumps := context.WithCancel(context.WithoutCancel(ctx))
	defer stopPumps()
	words := &lastWords{Sink: o.Log}
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		_, err := logpump.Pump(pumpsCtx, output, logpump.Options{FieldPrefix: "CONTAINERD_", MaxRecord: o.MaxRecord}, words)
		return err
	})
	reading := startFIFO(pumpsCtx, g, o)

	child, err := startChild(g, o, input)
	_ = input.Close() // the child has its own
	if err != nil {
		stopPumps()
		return errors.Join(fmt.Errorf("start containerd: %w", err), g.Wait())
	}
	s := supervisor{Options: o, child: child, cri: cri, reading: reading}
	s.run(gctx, g)
	stopPumps()
	err = g.Wait()
	return errors.Join(s.verdict(words), err)
}

// startFIFO begins to carry runsc's log, in g, which a failure of it ends. The channel is closed once the FIFO is
// open; one that was passed open is from the beginning.
func startFIFO(ctx context.Context, g *errgroup.Group, o Options) <-chan struct{} {
	reading := make(chan struct{})
	open := sync.OnceFunc(func() { close(reading) })
	if o.RunscFIFO == "" || len(o.RunscFIFOFiles) > 0 {
		open()
	}
	if o.RunscFIFO == "" {
		return reading
	}
	opened := func(f *os.File) {
		o.RunscFIFOOpened(f)
		open()
	}
	g.Go(func() error {
		_, err := logpump.Serve(ctx, o.RunscFIFO, o.RunscFIFOFiles, logpump.Options{
			FieldPrefix: "RUNSC_", MaxRecord: o.MaxRecord, Spool: o.RunscSpool, Report: o.Counters, Opened: opened,
		}, o.RunscLog)
		return err
	})
	return reading
}
