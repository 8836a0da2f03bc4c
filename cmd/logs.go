package cmd

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"seedbed/logpump"
)

func newLogsCommand(g *globals) *cobra.Command {
	return newGroup("logs", "Carry log FIFOs to the journal",
		"Carry the records that programs write into FIFOs to the journal or to standard error.",
		"  seedbed logs pump /ephemeral/consensus/server-logs.fifo --identifier etcd",
		newPumpCommand(g))
}

// logOptions are the flags of every command that pumps logs.
type logOptions struct {
	metricsFile string
	maxRecord   int
}

// The bounds of --max-record: a header has to fit, and two records into the memory of a pump.
const (
	leastMaxRecord    = 256
	greatestMaxRecord = 16 << 20
)

func (o *logOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.metricsFile, "metrics-file", "", "`file` for the counters of the log FIFOs, in Prometheus' text format (default none)")
	f.IntVar(&o.maxRecord, "max-record", 48<<10, "longest log record in `bytes`; longer ones are split and marked")
	setEnvironment(f, "metrics-file", "SEEDBED_METRICS_FILE")
}

func (o *logOptions) check() error {
	if o.maxRecord < leastMaxRecord || o.maxRecord > greatestMaxRecord {
		return fmt.Errorf("flag --max-record: found %d: expected %d to %d bytes", o.maxRecord, leastMaxRecord, greatestMaxRecord)
	}
	return nil
}

type pumpOptions struct {
	*globals
	logOptions
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
FIFOs at the end is still carried. A FIFO that is removed or replaced meanwhile is put
back. A unit with RuntimeDirectory= keeps what is not in the log yet there, so that a
killed pump loses nothing.`,
		Example: `  seedbed logs pump /ephemeral/consensus/server-logs.fifo --identifier etcd --format json
  seedbed logs pump a.fifo b.fifo --log-format json --metrics-file logs.prom`,
		Args:    someFIFOs,
		PreRunE: func(*cobra.Command, []string) error { return o.check() },
		RunE:    func(c *cobra.Command, args []string) error { return runPump(c.Context(), o, args) },
	}
	o.addFlags(c.Flags())
	return c
}

func (o *pumpOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.identifier, "identifier", "", "`name` of the source in the journal (default: the FIFO's name without .fifo)")
	f.StringVar(&o.format, "format", "auto", "records as `auto|glog|json|text`")
	o.logOptions.addFlags(f)
}

func someFIFOs(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return errors.New("found no FIFO: expected the path of at least one")
	}
	return nil
}

func (o *pumpOptions) check() (err error) {
	if o.records, err = logpump.ParseFormat(o.format); err != nil {
		return fmt.Errorf("flag --format: %w", err)
	}
	return o.logOptions.check()
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
	for i, path := range paths {
		var err error
		if paths[i], err = filepath.Abs(path); err != nil {
			return err
		}
	}
	for _, path := range slices.Compact(slices.Sorted(slices.Values(paths))) {
		s, err := o.open(path, passed[fdName(path)])
		if err != nil {
			return err
		}
		sources = append(sources, s)
	}
	return o.pumpAll(ctx, sources)
}

// noFIFO is a path that leads to no FIFO.
type noFIFO struct {
	path string
	err  error
}

func (e *noFIFO) Error() string { return e.err.Error() }
func (e *noFIFO) Unwrap() error { return e.err }

// Hint is the next step: unlike containerd run, pump makes none, for the name is most likely wrong.
func (e *noFIFO) Hint() string {
	return "name the FIFO that the program writes into; `mkfifo -m 0600 " + e.path + "` makes one where nothing is"
}

// open opens what is to be pumped.
func (o *pumpOptions) open(path string, held []*os.File) (source, error) {
	err := logpump.CheckFIFO(path)
	var not *logpump.NotFIFO
	switch {
	case errors.As(err, &not):
		return source{}, &noFIFO{path, err}
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return source{}, &noFIFO{path, input(fmt.Errorf("open FIFO %q: %w", path, errors.Unwrap(err)))}
	case err != nil:
		return source{}, err
	}
	sink, err := o.sink(cmp.Or(o.identifier, strings.TrimSuffix(filepath.Base(path), ".fifo")), o.streams.Out)
	return source{path, held, sink}, err
}

func (o *pumpOptions) pumpAll(ctx context.Context, sources []source) error {
	var paths []string
	for _, s := range sources {
		paths = append(paths, s.path)
	}
	meter, err := newMeter(o.globals, o.metricsFile, paths...)
	if err != nil {
		return err
	}
	defer meter.end()
	notify := notifier{o.globals}
	group, ctx := errgroup.WithContext(ctx)
	for _, s := range sources {
		name := fdName(s.path)
		group.Go(func() error {
			_, err := logpump.Serve(ctx, s.path, s.held, logpump.Options{
				Format: o.records, MaxRecord: o.maxRecord, Spool: spool(name),
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
