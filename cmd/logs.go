package cmd

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coreos/go-systemd/v22/activation"
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
	path string
	held []*os.File
	sink logpump.Sink
}

func runPump(ctx context.Context, o *pumpOptions, paths []string) error {
	var sources []source
	defer func() {
		for _, s := range sources {
			_ = s.sink.Close()
		}
	}()
	passed := passedFIFOs()
	for _, path := range slices.Compact(slices.Sorted(slices.Values(paths))) {
		s, err := o.open(path, passed[fdName(path)])
		if err != nil {
			return err
		}
		sources = append(sources, s)
	}
	return o.pumpAll(ctx, sources)
}

// open opens what is to be pumped. A FIFO that is not there is most likely a wrong
// name, and is not made.
func (o *pumpOptions) open(path string, held []*os.File) (source, error) {
	if err := logpump.CheckFIFO(path); err != nil {
		return source{}, input(err)
	}
	sink, err := o.sink(cmp.Or(o.identifier, strings.TrimSuffix(filepath.Base(path), ".fifo")), o.streams.Out)
	return source{path, held, sink}, err
}

func (o *pumpOptions) pumpAll(ctx context.Context, sources []source) error {
	meter := newMeter(o.globals)
	defer meter.end()
	notify := notifier{o.globals}
	group, ctx := errgroup.WithContext(ctx)
	var paths []string
	for _, s := range sources {
		paths = append(paths, s.path)
		name := fdName(s.path)
		group.Go(func() error {
			_, err := logpump.Serve(ctx, s.path, s.held, logpump.Options{
				Format: o.records, Spool: spool(name),
				Report: func(c logpump.Counters) { meter.count(s.path, c) },
				Opened: func(f *os.File) { notify.Keep(name, f) },
			}, s.sink)
			return err
		})
	}
	meter.status("reading " + strings.Join(paths, ", "))
	notify.Ready(meter.text())
	return group.Wait()
}

// passedFIFOs are the descriptors that the service manager has kept or holds open
// (sd_listen_fds(3)), by their names.
func passedFIFOs() map[string][]*os.File {
	passed := map[string][]*os.File{}
	for _, f := range activation.Files(true) {
		passed[f.Name()] = append(passed[f.Name()], f)
	}
	return passed
}

// fdName names a FIFO among kept descriptors and spools, where no name may hold a
// slash.
func fdName(path string) string {
	sum := sha256.Sum256([]byte(path))
	return "log-" + hex.EncodeToString(sum[:8])
}

// spool is the file for what is not in the log yet, in the unit's runtime
// directory (systemd.exec(5), RuntimeDirectory=); none elsewhere.
func spool(name string) string {
	dir, _, _ := strings.Cut(os.Getenv("RUNTIME_DIRECTORY"), ":")
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, name+".spool")
}
