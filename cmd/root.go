// Package cmd is seedbed's command line: flags, wiring and words. Every command reads
// the manifest if it needs it, turns it and its flags into the Options of one
// library call, and reports what came out of it in text or as one JSON document.
package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"seedbed/storage"
)

// streams are the three standard streams of a run.
type streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// Main runs the command line args (without the program's name) and returns the
// exit code, one of the table in exit.go. TERM and INT end the work through the
// context; a closed standard output neither ends it nor makes it fail.
func Main(args []string) int {
	ignoreBrokenPipes()
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	return run(ctx, args, streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
}

// ignoreBrokenPipes turns a write to a closed pipe into EPIPE (os/signal,
// "SIGPIPE"). Unlike signal.Ignore it is not inherited by child processes.
func ignoreBrokenPipes() {
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
}

// run is Main with streams of its own. An error from before a command has begun
// its work is the command line's.
func run(ctx context.Context, args []string, s streams) int {
	s.Out = &pipeWriter{w: s.Out}
	g := &globals{streams: s}
	root := newRootCommand(g)
	root.SetArgs(args)
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	c, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	if !g.running {
		g.output = requestedOutput(args)
		err = &usageError{command: c.CommandPath(), err: err}
	}
	g.reportError(err)
	if g.running {
		notifier{g}.Failed(err)
	}
	return exitCode(err)
}

// globals are the flags that every command has, and what is made of them.
type globals struct {
	streams   streams
	log       *slog.Logger
	root      string
	rootNamed bool // it is not only the default
	manifest  string
	output    string
	progress  string
	logLevel  string
	logFormat string
	quiet     bool
	terminal  *terminal // what progress is drawn on; nil where it is written in lines

	running bool // the command line is understood and the command at work
	printed bool // the document of -o json is on standard output

	unheard sync.Once // the first message that the service manager did not get
}

func newRootCommand(g *globals) *cobra.Command {
	root := &cobra.Command{
		Use:   "seedbed",
		Short: "Place a node's tree, run containerd on it, preseed its images",
		Long: `seedbed prepares a node before anything else runs on it: it lays down the
node's directory tree, runs containerd on that tree, and brings the node's
container images into containerd without a network.`,
		Example: `  seedbed storage place
  seedbed containerd run
  seedbed preseed import`,
		Args:              cobra.ArbitraryArgs,
		RunE:              runGroup,
		SilenceErrors:     true,
		SilenceUsage:      true,
		PersistentPreRunE: func(c *cobra.Command, _ []string) error { return g.prepare(c) },
	}
	g.addFlags(root.PersistentFlags())
	root.AddCommand(
		newStorageCommand(g), newContainerdCommand(g), newPreseedCommand(g),
		newLogsCommand(g), newUnitsCommand(g), newVersionCommand(g), newManCommand(g),
	)
	addCobraCommands(root)
	g.watchStart(root)
	return root
}

// addCobraCommands adds the commands that cobra brings, completion and help, gives
// them examples, and makes them answer an unknown word as ours do.
func addCobraCommands(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "completion":
			c.Args, c.RunE = cobra.ArbitraryArgs, runGroup
			c.Example = "  seedbed completion bash > /etc/bash_completion.d/seedbed"
			for _, shell := range c.Commands() {
				shell.Example = "  seedbed completion " + shell.Name()
			}
		case "help":
			c.Run, c.RunE = nil, runHelp
			c.Example = "  seedbed help storage place"
		}
	}
}

func runHelp(c *cobra.Command, args []string) error {
	topic, rest, err := c.Root().Find(args)
	if err == nil && len(rest) > 0 {
		return runGroup(topic, rest)
	}
	if err != nil {
		return err
	}
	topic.InitDefaultHelpFlag()
	return topic.Help()
}

// watchStart lets every command note that it has begun: cobra has no error of its
// own for what it finds wrong with flags and arguments before that.
func (g *globals) watchStart(c *cobra.Command) {
	if work := c.RunE; work != nil {
		c.RunE = func(c *cobra.Command, args []string) error {
			g.running = true
			return work(c, args)
		}
	}
	for _, child := range c.Commands() {
		g.watchStart(child)
	}
}

// newGroup returns a command that only holds others: alone it prints its help,
// with an unknown word it is a usage error.
func newGroup(use, short, long, example string, children ...*cobra.Command) *cobra.Command {
	group := &cobra.Command{
		Use: use, Short: short, Long: long, Example: example,
		Args: cobra.ArbitraryArgs, RunE: runGroup,
	}
	group.AddCommand(children...)
	return group
}

func runGroup(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return c.Help()
	}
	return &usageError{
		command: c.CommandPath(),
		err:     fmt.Errorf("unknown command %q", args[0]),
		similar: similarCommands(c, args[0]),
	}
}

// similarCommands are the commands below c that word may have meant: at most
// two letters away.
func similarCommands(c *cobra.Command, word string) []string {
	c.SuggestionsMinimumDistance = 2
	return c.SuggestionsFor(word)
}

func (g *globals) addFlags(f *pflag.FlagSet) {
	f.StringVar(&g.root, "root", "/", "`directory` that the tree is placed under")
	f.StringVar(&g.manifest, "manifest", "", "manifest `file` (default <root>/run/seedbed/manifest.json)")
	f.StringVarP(&g.output, "output", "o", "text", "result as `text|json`")
	f.StringVar(&g.progress, "progress", "auto", "progress as `auto|plain|json|none`")
	f.StringVar(&g.logLevel, "log-level", "info", "least level that is logged: `debug|info|warn|error`")
	f.StringVar(&g.logFormat, "log-format", "auto", "log as `auto|text|json|journal`")
	f.BoolVarP(&g.quiet, "quiet", "q", false, "results only: no log below error, no progress")
	for flag, name := range map[string]string{
		"root": "SEEDBED_ROOT", "manifest": "SEEDBED_MANIFEST", "output": "SEEDBED_OUTPUT",
		"progress": "SEEDBED_PROGRESS", "log-level": "SEEDBED_LOG_LEVEL", "log-format": "SEEDBED_LOG_FORMAT",
	} {
		setEnvironment(f, flag, name)
	}
}

// prepare completes the global flags once they are parsed.
func (g *globals) prepare(c *cobra.Command) error {
	if err := bindEnvironment(c.Flags()); err != nil {
		return err
	}
	for flag, allowed := range map[string][]string{
		"output":     {"text", "json"},
		"progress":   {"auto", "plain", "json", "none"},
		"log-level":  {"debug", "info", "warn", "error"},
		"log-format": {"auto", "text", "json", "journal"},
	} {
		value := c.Flags().Lookup(flag).Value.String()
		if !slices.Contains(allowed, value) {
			return fmt.Errorf("flag --%s: found %q: expected %s", flag, value, strings.Join(allowed, "|"))
		}
	}
	if g.progress == "auto" && !g.quiet {
		if g.terminal = newTerminal(g.streams.Err); g.terminal != nil {
			g.streams.Err = g.terminal
		}
	}
	g.log = slog.New(newLogHandler(g))
	if g.root == "" {
		return errors.New("flag --root: found nothing: expected a directory (for the host's own root: /)")
	}
	root, err := storage.CleanRoot(g.root)
	if err != nil {
		return &usageError{command: c.CommandPath(), err: fmt.Errorf("flag --root: %w", err)}
	}
	g.root, g.rootNamed = root, c.Flags().Changed("root") || root != "/"
	if g.manifest == "" {
		g.manifest = storage.DefaultManifest(root)
	}
	g.manifest, err = storage.CleanRoot(g.manifest)
	return err
}

// readManifest reads the manifest for a command that uses the nodes with these
// ids: they still have to be what was placed. Where a root is named, it has to be
// that root's.
func (g *globals) readManifest(uses ...string) (manifest *storage.Manifest, err error) {
	if g.rootNamed {
		manifest, err = storage.ReadManifestOf(g.manifest, g.root)
	} else {
		manifest, err = storage.ReadManifest(g.manifest)
	}
	if err != nil || len(uses) == 0 {
		return manifest, err
	}
	return manifest, manifest.CheckNodes(uses...)
}

func (g *globals) json() bool { return g.output == "json" }

const environmentAnnotation = "seedbed_environment"

// setEnvironment names the environment variable that a flag's value is taken
// from when the flag is not given.
func setEnvironment(f *pflag.FlagSet, flag, name string) {
	known := f.Lookup(flag)
	known.Usage += " (environment: " + name + ")"
	known.Annotations = map[string][]string{environmentAnnotation: {name}}
}

// bindEnvironment fills in the flags that are not given from their environment
// variables. They still count as not given.
func bindEnvironment(f *pflag.FlagSet) error {
	var errs []error
	f.VisitAll(func(flag *pflag.Flag) {
		names := flag.Annotations[environmentAnnotation]
		if len(names) == 0 || flag.Changed {
			return
		}
		if value := os.Getenv(names[0]); value != "" {
			if err := flag.Value.Set(value); err != nil {
				errs = append(errs, fmt.Errorf("environment variable %s: %w", names[0], err))
			}
		}
	})
	return errors.Join(errs...)
}

// requestedOutput is the output format that args, or else the environment, ask
// for, also when the rest of args cannot be understood.
func requestedOutput(args []string) string {
	g := &globals{}
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.ParseErrorsAllowlist.UnknownFlags = true
	g.addFlags(f)
	_ = f.Parse(args) // what is wrong with args is known already
	_ = bindEnvironment(f)
	return g.output
}
