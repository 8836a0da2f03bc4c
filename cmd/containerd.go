package cmd

import (
	"cmp"
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
	notify := notifier{o.globals}
	options.Ready = func() { notify.Ready("containerd answers on " + options.Address) }
	options.Status = notify.Status
	options.Stopping = notify.Stopping
	return daemon.Run(ctx, options)
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
		Environ: os.Environ(), StartTimeout: o.startTimeout, StopTimeout: o.stopTimeout,
	}, nil
}

// openLogs opens the FIFO that was passed and both sinks; the returned function
// closes what it opened.
func (o *runOptions) openLogs(options *daemon.Options) (closeLogs func(), err error) {
	if options.RunscFIFOFile, err = passedFIFO(); err != nil {
		return nil, err
	}
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

// passedFIFO is the log FIFO that the socket unit holds open and passes on
// (sd_listen_fds(3)); nil where there is none.
func passedFIFO() (*os.File, error) {
	files := activation.Files(true)
	if len(files) > 1 {
		return nil, fmt.Errorf("take over descriptors: found %d: expected one, of seedbed-runsc-log.socket", len(files))
	}
	if len(files) == 0 {
		return nil, nil
	}
	return files[0], nil
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

func newContainerdCheckCommand(g *globals) *cobra.Command {
	o := &runOptions{globals: g}
	c := &cobra.Command{
		Use:     "check",
		Short:   "Say, before it is run, what would go wrong",
		Long:    "Check looks at everything that `containerd run` needs: the binary, the configuration, the socket's path, the FIFO, the runtimes' shims.",
		Example: "  seedbed containerd check",
		Args:    cobra.NoArgs,
		RunE:    func(*cobra.Command, []string) error { return runContainerdCheck(o) },
	}
	o.addFlags(c.Flags())
	return c
}

// preflightReport is the document of `containerd check -o json`; config is absent
// when the configuration is rendered.
type preflightReport struct {
	Schema   string             `json:"schema"`
	Binary   string             `json:"binary"`
	Config   string             `json:"config,omitempty"`
	Findings []preflightFinding `json:"findings"`
}

type preflightFinding struct {
	Check   string `json:"check"`
	Warning bool   `json:"warning,omitempty"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

func runContainerdCheck(o *runOptions) error {
	manifest, err := o.readManifest(containerdNodes()...)
	if err != nil {
		return err
	}
	options, err := o.daemonOptions(manifest)
	if err != nil {
		return err
	}
	rendered, err := os.MkdirTemp("", "seedbed-check-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(rendered)
	if options.ConfigFile, err = o.placeConfig(manifest, rendered); err != nil {
		return err
	}
	report := preflightReport{Schema: "seedbed.containerd.check/v1", Binary: options.Binary.String(), Findings: []preflightFinding{}}
	if filepath.Dir(options.ConfigFile) != rendered {
		report.Config = options.ConfigFile
	}
	var fatal []daemon.Finding
	for _, f := range daemon.Preflight(options) {
		report.Findings = append(report.Findings, preflightFinding{Check: f.Check, Warning: f.Warning, Message: f.Err.Error(), Hint: hint(f.Err)})
		if !f.Warning {
			fatal = append(fatal, f)
		}
	}
	if err := o.writePreflight(report); err != nil || len(fatal) == 0 {
		return err
	}
	return codeError(exitCode(&daemon.PreflightError{Findings: fatal}))
}

func (o *runOptions) writePreflight(report preflightReport) error {
	if o.json() {
		return o.printJSON(report)
	}
	for _, f := range report.Findings {
		severity := "error"
		if f.Warning {
			severity = "warning"
		}
		fmt.Fprintf(o.streams.Out, "%-8s %s: %s\n", severity, f.Check, printable(f.Message))
		if f.Hint != "" {
			fmt.Fprintf(o.streams.Out, "         hint: %s\n", printable(f.Hint))
		}
	}
	_, err := fmt.Fprintf(o.streams.Out, "checked containerd %s with %s: %d findings\n",
		printable(report.Binary), printable(cmp.Or(report.Config, "the rendered configuration")), len(report.Findings))
	return err
}
