package cmd

import (
	"context"
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
		RunE: func(c *cobra.Command, args []string) error {
			format, err := logpump.ParseFormat(o.format)
			if err != nil {
				return &usageError{command: c.CommandPath(), err: err}
			}
			return runPump(c.Context(), o, format, args)
		},
	}
	c.Flags().StringVar(&o.identifier, "identifier", "", "`name` of the source in the journal (default: the FIFO's name without .fifo)")
	c.Flags().StringVar(&o.format, "format", "auto", "records as `auto|glog|json|text`")
	return c
}

func runPump(ctx context.Context, o *pumpOptions, format logpump.Format, paths []string) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, path := range slices.Compact(slices.Sorted(slices.Values(paths))) {
		fifo, err := logpump.Open(path)
		if err != nil {
			return err
		}
		defer fifo.Close()
		sink, err := o.pumpSink(path)
		if err != nil {
			return err
		}
		defer sink.Close()
		group.Go(func() error {
			_, err := logpump.Pump(ctx, fifo, logpump.Options{Format: format}, sink)
			return err
		})
	}
	notifier{o.globals}.Ready("reading " + strings.Join(paths, ", "))
	return group.Wait()
}

func (o *pumpOptions) pumpSink(path string) (logpump.Sink, error) {
	identifier := o.identifier
	if identifier == "" {
		identifier = strings.TrimSuffix(filepath.Base(path), ".fifo")
	}
	if o.logFormat == "journal" || o.logFormat == "auto" && isJournal(o.streams.Err) {
		return logpump.NewJournal(identifier)
	}
	return logpump.NewText(o.streams.Out, identifier), nil
}
