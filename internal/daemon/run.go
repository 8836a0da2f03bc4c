package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sync/errgroup"

	"seedbed/logpump"
)

// Run runs containerd until it ends or ctx does, and returns when it is gone and everything
// that it and runsc have logged is with the sinks. When ctx ends it is sent TERM once, and KILL when
// it has not stopped within StopTimeout; processes that containerd has started are never signalled.
//
// It returns nil after a stop that ctx asked for, *[ExitError] when containerd ended
// otherwise (with code 0 too), *[StartTimeout], *[CRIError], or, before anything is started,
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
		_, err := logpump.Pump(pumpsCtx, output, logpump.Options{FieldPrefix: "CONTAINERD_"}, words)
		return err
	})
	if o.RunscFIFO != "" {
		g.Go(func() error { return pumpFIFO(pumpsCtx, o) })
	}

	child, err := startChild(g, o, input)
	_ = input.Close() // the child has its own
	if err != nil {
		stopPumps()
		return errors.Join(fmt.Errorf("start containerd: %w", err), g.Wait())
	}
	s := supervisor{Options: o, child: child, cri: cri}
	s.run(gctx, g)
	stopPumps()
	err = g.Wait()
	return errors.Join(s.verdict(words.String()), err)
}

// pumpFIFO carries runsc's log; its failure ends the group.
func pumpFIFO(ctx context.Context, o Options) error {
	_, err := logpump.Serve(ctx, o.RunscFIFO, o.RunscFIFOFiles, logpump.Options{
		FieldPrefix: "RUNSC_", Spool: o.RunscSpool, Report: o.Counters, Opened: o.RunscFIFOOpened,
	}, o.RunscLog)
	return err
}
