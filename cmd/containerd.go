package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"seedbed/internal/daemon"
	"seedbed/logpump"
	"seedbed/storage"
)

func newContainerdCommand(g *globals) *cobra.Command {
	return newGroup("containerd", "Run containerd on the placed tree",
		"Run containerd on the placed tree, print the configuration it gets, or look for what would stop it.",
		"  seedbed containerd check\n  seedbed containerd run",
		newRunCommand(g), newConfigCommand(g), newContainerdCheckCommand(g))
}

type runOptions struct {
	*globals
	logOptions
	containerd   string
	config       string
	startTimeout time.Duration
	stopTimeout  time.Duration
}

func newRunCommand(g *globals) *cobra.Command {
	o := &runOptions{globals: g}
	c := &cobra.Command{
		Use:   "run",
		Short: "Run containerd and carry its logs and gVisor's",
		Long: `Run starts containerd on the placed tree as a child, says READY=1 to the service
manager once containerd answers and the log FIFO is read, and carries
containerd's and gVisor's logs to the journal, or to standard error. TERM and INT
stop containerd; containers go on running. The containerd is the one in
system.bin, else one in PATH that is not too old for the configuration, else the
one inside seedbed.`,
		Example: `  seedbed containerd run
  seedbed --root ./demo containerd run --stop-timeout 10s`,
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return o.check() },
		RunE:    func(c *cobra.Command, _ []string) error { return runContainerd(c.Context(), o) },
	}
	o.addFlags(c.Flags())
	f := c.Flags()
	f.DurationVar(&o.startTimeout, "start-timeout", 0, "`duration` that containerd may take until it answers (default 0s: no limit)")
	o.logOptions.addFlags(f)
	f.DurationVar(&o.stopTimeout, "stop-timeout", daemon.DefaultStopTimeout, "`duration` that containerd may take to stop before it is killed")
	return c
}

func (o *runOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.containerd, "containerd", "", "containerd `binary` to run instead of the one that is found")
	f.StringVar(&o.config, "config", "", "containerd configuration `file` to use instead of the image's or the rendered one")
}

func (o *runOptions) check() error {
	if o.startTimeout < 0 {
		return fmt.Errorf("flag --start-timeout: found %s: expected no less than 0", o.startTimeout)
	}
	if o.stopTimeout <= 0 {
		return fmt.Errorf("flag --stop-timeout: found %s: expected more than 0", o.stopTimeout)
	}
	return o.logOptions.check()
}

// containerdNodes are the directories that containerd is trusted with. Its socket
// and the FIFO have checks of their own when they are opened.
func containerdNodes() []string {
	return []string{
		"system.bin", "system.conf", "data.containerd", "ephemeral.containerd",
		"ephemeral.containerd.tmp", "ephemeral.containerd.runsc",
	}
}

func runContainerd(ctx context.Context, o *runOptions) error {
	defer o.explainHangup()()
	options, config, err := o.prepare(os.Environ())
	if err != nil {
		return err
	}
	if options.ConfigFile, err = o.placeConfig(config); err != nil {
		return err
	}
	closeLogs, err := o.openLogs(&options)
	if err != nil {
		return err
	}
	defer closeLogs()
	meter, err := newMeter(o.globals, o.metricsFile, options.RunscFIFO)
	if err != nil {
		return err
	}
	notify := notifier{o.globals}
	options.MaxRecord = o.maxRecord
	options.Counters = func(c logpump.Counters) { meter.count(options.RunscFIFO, c) }
	options.RunscFIFOOpened = func(f *os.File) { notify.Keep(runscFDName, f) }
	options.Ready = func() { notify.Ready(meter.text()) }
	options.Status = meter.status
	options.Stopping = notify.Stopping
	options.Extend = notify.Extend
	options.Watchdog, options.Alive = notify.Watchdog(), notify.Alive
	stopRelay := relaySignals(&options)
	defer stopRelay()
	err = daemon.Run(ctx, options)
	if !as[*daemon.PreflightError](err) { // else nothing was carried
		meter.end()
	}
	return err
}

// prepare reads the manifest and chooses the program and the configuration, for a child with the given
// environment: what run and check have in common. Nothing is opened for good or written. What is wrong with what is chosen,
// daemon.Preflight says.
func (o *runOptions) prepare(environ []string) (daemon.Options, configuration, error) {
	nodes := containerdNodes()
	if os.Geteuid() != 0 {
		nodes = nil // only root can look at them all; Preflight says that it takes root
	}
	manifest, err := o.readManifest(nodes...)
	if err != nil {
		return daemon.Options{}, configuration{}, err
	}
	if err := needNodes(manifest, daemonNodes()...); err != nil {
		return daemon.Options{}, configuration{}, err
	}
	config, err := o.configuration(manifest)
	if err != nil && !as[*daemon.ConfigError](err) {
		return daemon.Options{}, config, err
	}
	return o.daemonOptions(manifest.Tree(), config, environ), config, nil
}

// runscFDName is the name of the log FIFO among the descriptors that systemd keeps; that of the
// socket unit too.
const runscFDName = "runsc-log"

// relaySignals has SIGUSR1 passed on to containerd, which writes its stacks into its TMPDIR then; the
// returned function ends that.
func relaySignals(options *daemon.Options) func() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGUSR1)
	options.Signals = signals
	return func() { signal.Stop(signals) }
}

// explainHangup takes SIGHUP, which kills a bare containerd, and says that it
// changes nothing; the returned function ends that.
func (o *runOptions) explainHangup() func() {
	hangups := make(chan os.Signal, 1)
	done := make(chan struct{})
	signal.Notify(hangups, unix.SIGHUP)
	go func() {
		defer close(done)
		for range hangups {
			o.log.Warn("ignored SIGHUP: containerd reads its configuration only when it starts: restart it instead")
		}
	}()
	return func() {
		signal.Stop(hangups)
		close(hangups)
		<-done
	}
}

// daemonOptions turns the tree and the flags into the daemon's options, but for its logs.
func (o *runOptions) daemonOptions(tree *storage.Root, config configuration, environ []string) daemon.Options {
	bin, runtime := tree.System.Bin.FullPath(), tree.Ephemeral.Containerd
	// One that cannot be run is still the one that was to be run, and Preflight's to explain.
	binary, _ := daemon.Find(o.containerd, bin, daemon.SearchPath(environ), config.Containerd)
	return daemon.Options{
		Binary: binary, User: os.Geteuid(),
		ConfigFile: cmp.Or(config.Path, renderedConfig), Config: config.Containerd,
		Root: tree.Data.Containerd.FullPath(), State: runtime.FullPath(),
		Address: runtime.ClientSocket.FullPath(), RunscFIFO: runtime.RunscLogsFIFO.FullPath(),
		BinDir: bin, TempDir: runtime.Tmp.FullPath(),
		RunscSpool: filepath.Join(o.renderDir(), runscFDName+".spool"),
		Environ:    environ, StartTimeout: o.startTimeout, StopTimeout: o.stopTimeout,
	}
}

// openLogs takes the FIFOs that were passed and opens both sinks; the returned
// function closes the sinks.
func (o *runOptions) openLogs(options *daemon.Options) (closeLogs func(), err error) {
	options.RunscFIFOFiles = activation.Files(true)
	if options.Log, err = o.sink("containerd", o.streams.Err); err != nil {
		return nil, err
	}
	if options.RunscLog, err = o.sink("runsc", o.streams.Err); err != nil {
		return nil, errors.Join(err, options.Log.Close())
	}
	return func() {
		_ = options.Log.Close()
		_ = options.RunscLog.Close()
	}, nil
}

// sink is where the records of one source go: the journal under its own
// identifier when that is where logs go, else w, in JSON when that is their form.
func (g *globals) sink(identifier string, w io.Writer) (logpump.Sink, error) {
	switch {
	case g.logsToJournal():
		return logpump.NewJournal(identifier)
	case g.logFormat == "json":
		return logpump.NewJSON(fileBehind(w), identifier), nil
	}
	return logpump.NewText(fileBehind(w), identifier), nil
}

// fileBehind returns the file that a standard stream is: a sink has to know whether its reader has stopped or gone.
func fileBehind(w io.Writer) io.Writer {
	switch w := w.(type) {
	case *pipeWriter:
		return w.w
	case *terminal:
		return w.w
	}
	return w
}
