package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
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
system.bin, else one in PATH, else the one inside seedbed.`,
		Example: `  seedbed containerd run
  seedbed --root ./demo containerd run --stop-timeout 10s`,
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return o.check() },
		RunE:    func(c *cobra.Command, _ []string) error { return runContainerd(c.Context(), o) },
	}
	o.addFlags(c.Flags())
	f := c.Flags()
	f.DurationVar(&o.startTimeout, "start-timeout", 0, "`duration` that containerd may take until it answers (0: no limit)")
	f.DurationVar(&o.stopTimeout, "stop-timeout", 30*time.Second, "`duration` that containerd may take to stop before it is killed")
	return c
}

func (o *runOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.containerd, "containerd", "", "containerd `binary` to run instead of the one that is found")
	f.StringVar(&o.config, "config", "", "containerd configuration `file` to use instead of the image's or the rendered one")
}

func (o *runOptions) check() error {
	if o.startTimeout < 0 || o.stopTimeout < 0 {
		return fmt.Errorf("flags --start-timeout and --stop-timeout: found %s and %s: expected no less than 0", o.startTimeout, o.stopTimeout)
	}
	return nil
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
	manifest, err := o.readManifest(containerdNodes()...)
	if err != nil {
		return err
	}
	options, err := o.daemonOptions(manifest)
	if err != nil {
		return err
	}
	if options.ConfigFile, err = o.placeConfig(manifest, o.renderDir()); err != nil {
		return err
	}
	closeLogs, err := o.openLogs(&options)
	if err != nil {
		return err
	}
	defer closeLogs()
	meter := newMeter(o.globals)
	defer meter.end()
	notify := notifier{o.globals}
	options.Counters = func(c logpump.Counters) { meter.count(options.RunscFIFO, c) }
	options.RunscFIFOOpened = func(f *os.File) { notify.Keep(runscFDName, f) }
	options.Ready = func() { notify.Ready(meter.text()) }
	options.Status = meter.status
	options.Stopping = notify.Stopping
	options.Extend = notify.Extend
	options.Watchdog, options.Alive = notify.Watchdog(), notify.Alive
	stopRelay := relaySignals(&options)
	defer stopRelay()
	return daemon.Run(ctx, options)
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

// daemonOptions turns the manifest and the flags into the daemon's options, but
// for its configuration and its logs: nothing is opened or written yet.
func (o *runOptions) daemonOptions(manifest *storage.Manifest) (daemon.Options, error) {
	if err := needNodes(manifest, daemonNodes()...); err != nil {
		return daemon.Options{}, err
	}
	tree := manifest.Tree()
	binary, err := daemon.Find(o.containerd, tree.System.Bin.FullPath(), os.Getenv("PATH"))
	if err != nil {
		return daemon.Options{}, err
	}
	return daemon.Options{
		Binary:    binary,
		Address:   tree.Ephemeral.Containerd.ClientSocket.FullPath(),
		RunscFIFO: tree.Ephemeral.Containerd.RunscLogsFIFO.FullPath(),
		BinDir:    tree.System.Bin.FullPath(), TempDir: tree.Ephemeral.Containerd.Tmp.FullPath(),
		RunscSpool: filepath.Join(o.renderDir(), runscFDName+".spool"),
		Environ:    os.Environ(), StartTimeout: o.startTimeout, StopTimeout: o.stopTimeout,
	}, nil
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
// identifier when that is where logs go, else w.
func (g *globals) sink(identifier string, w io.Writer) (logpump.Sink, error) {
	if g.logsToJournal() {
		return logpump.NewJournal(identifier)
	}
	return logpump.NewText(w, identifier), nil
}

// configuration is the configuration that containerd gets, and the gVisor one
// that it points to. Path is set when it is a file of the image or of the user.
type configuration struct {
	Path       string
	Containerd []byte
	Runsc      []byte
}

// The files that are rendered.
const (
	renderedConfig = "containerd.toml"
	renderedRunsc  = "runsc.toml"
)

// renderDir is where they lie: beside the manifest that they are made of.
func (o *runOptions) renderDir() string { return filepath.Dir(o.manifest) }

// daemonNodes are the nodes without which there is no containerd to run.
func daemonNodes() []string {
	return []string{
		"system.bin", "data.containerd", "ephemeral.containerd", "ephemeral.containerd.client_socket", "ephemeral.containerd.cni",
		"ephemeral.containerd.runsc", "ephemeral.containerd.runsc_logs_fifo", "ephemeral.containerd.tmp",
	}
}

func (o *runOptions) configuration(manifest *storage.Manifest) (configuration, error) {
	tree := manifest.Tree()
	for _, path := range []string{o.config, tree.System.Conf.Containerd.FullPath()} {
		if path == "" {
			continue
		}
		data, err := daemon.ReadConfig(path)
		if err == nil || path == o.config || !errors.Is(err, fs.ErrNotExist) {
			return configuration{Path: path, Containerd: data}, err
		}
	}
	if err := needNodes(manifest, daemonNodes()...); err != nil {
		return configuration{}, err
	}
	options := daemonConfig(tree, filepath.Join(o.renderDir(), renderedRunsc))
	containerd, err := daemon.RenderConfig(options)
	if err != nil {
		return configuration{}, err
	}
	runsc, err := daemon.RenderRunscConfig(options)
	return configuration{Containerd: containerd, Runsc: runsc}, err
}

func daemonConfig(tree *storage.Root, runscConfig string) daemon.ConfigOptions {
	runtime := tree.Ephemeral.Containerd
	return daemon.ConfigOptions{
		Root: tree.Data.Containerd.FullPath(), State: runtime.FullPath(),
		Address: runtime.ClientSocket.FullPath(),
		CNIConf: runtime.CNI.FullPath(), CNIBin: tree.System.Bin.FullPath(),
		RunscRoot: runtime.Runsc.FullPath(), RunscConfig: runscConfig, RunscLogsFIFO: runtime.RunscLogsFIFO.FullPath(),
	}
}

// placeConfig returns the path of the configuration to run with; a rendered one
// is written into dir first.
func (o *runOptions) placeConfig(manifest *storage.Manifest, dir string) (string, error) {
	config, err := o.configuration(manifest)
	if err != nil || config.Path != "" {
		return config.Path, err
	}
	if err := storage.WriteFile(filepath.Join(dir, renderedRunsc), config.Runsc, 0o644); err != nil {
		return "", err
	}
	path := filepath.Join(dir, renderedConfig)
	return path, storage.WriteFile(path, config.Containerd, 0o644)
}

func newConfigCommand(g *globals) *cobra.Command {
	o := &runOptions{globals: g}
	c := &cobra.Command{
		Use:     "config",
		Short:   "Print the configuration that run would use",
		Long:    "Config prints the containerd configuration that `containerd run` would use: the user's, the image's, or the one that is rendered from the manifest.",
		Example: "  seedbed containerd config\n  seedbed containerd config -o json",
		Args:    cobra.NoArgs,
		RunE:    func(*cobra.Command, []string) error { return runConfig(o) },
	}
	c.Flags().StringVar(&o.config, "config", "", "containerd configuration `file` to use instead of the image's or the rendered one")
	return c
}

// configReport is the document of `containerd config -o json`; path is absent
// when the configuration is rendered.
type configReport struct {
	Schema     string `json:"schema"`
	Path       string `json:"path,omitempty"`
	Containerd string `json:"containerd"`
	Runsc      string `json:"runsc,omitempty"`
}

func runConfig(o *runOptions) error {
	manifest, err := storage.ReadManifest(o.globals.manifest)
	if err != nil {
		return err
	}
	config, err := o.configuration(manifest)
	if err != nil {
		return err
	}
	if o.json() {
		return o.printJSON(configReport{
			Schema: "seedbed.containerd.config/v1", Path: config.Path,
			Containerd: string(config.Containerd), Runsc: string(config.Runsc),
		})
	}
	_, err = o.streams.Out.Write(config.Containerd)
	return err
}
