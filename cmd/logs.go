package cmd

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"seedbed/logpump"
)

func newLogsCommand(g *globals) *cobra.Command {
	return newGroup("logs", "Carry log FIFOs to the journal",
		"Carry the records that programs write into FIFOs to the journal or to standard error.",
		"  seedbed logs pump /ephemeral/consensus/server-logs.fifo --identifier etcd",
		newPumpCommand(g))
}

type pumpOptions struct {
	*globals
	identifier string
	format     string
	records    logpump.Format // what format says
}

func newPumpCommand(g *globals) *cobra.Command {
	o := &pumpOptions{globals: g}
	c := &cobra.Command{
		Use:   "pump FIFO…",
		Short: "Carry any FIFO's records to the journal or stdout",
		Long: `Pump reads records from the FIFOs until TERM or INT and sends them to the journal
when standard error is the journal's, else to standard output. What is in the
FIFOs at the end is still carried.`,
		Example: "  seedbed logs pump /ephemeral/consensus/server-logs.fifo --identifier etcd --format json",
		Args:    cobra.MinimumNArgs(1),
		PreRunE: func(*cobra.Command, []string) error { return o.check() },
		RunE:    func(c *cobra.Command, args []string) error { return runPump(c.Context(), o, args) },
	}
	c.Flags().StringVar(&o.identifier, "identifier", "", "`name` of the source in the journal (default: the FIFO's name without .fifo)")
	c.Flags().StringVar(&o.format, "format", "auto", "records as `auto|glog|json|text`")
	return c
}

func (o *pumpOptions) check() (err error) {
	o.records, err = logpump.ParseFormat(o.format)
	return err
}

// source is an open FIFO and where its records go.
type source struct {
	fifo *os.File
	sink logpump.Sink
}

func runPump(ctx context.Context, o *pumpOptions, paths []string) error {
	var sources []source
	defer func() {
		for _, s := range sources {
			_ = s.fifo.Close()
			_ = s.sink.Close()
		}
	}()
	for _, path := range slices.Compact(slices.Sorted(slices.Values(paths))) {
		s, err := o.open(path)
		if err != nil {
			return err
		}
		sources = append(sources, s)
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, s := range sources {
		group.Go(func() error {
			_, err := logpump.Pump(ctx, s.fifo, logpump.Options{Format: o.records}, s.sink)
			return err
		})
	}
	notifier{o.globals}.Ready("reading " + strings.Join(paths, ", "))
	return group.Wait()
}

func (o *pumpOptions) open(path string) (source, error) {
	fifo, err := logpump.Open(path)
	if err != nil {
		return source{}, input(err)
	}
	sink, err := o.sink(cmp.Or(o.identifier, strings.TrimSuffix(filepath.Base(path), ".fifo")), o.streams.Out)
	if err != nil {
		return source{}, errors.Join(err, fifo.Close())
	}
	return source{fifo, sink}, nil
}
