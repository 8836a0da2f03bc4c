package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"seedbed/internal/daemon"
	"seedbed/preseed"
	"seedbed/preseed/offline"
)

func newPreseedCommand(g *globals) *cobra.Command {
	return newGroup("preseed", "Bring image bundles into containerd",
		"Bring image bundles, <preseed>/<containerd namespace>/*.tar, into containerd, and say what is in them and in the store.",
		"  seedbed preseed check ./bundles\n  seedbed preseed import\n  seedbed preseed import --offline",
		newImportCommand(g), newPreseedCheckCommand(g), newVerifyCommand(g), newListCommand(g))
}

// sourceOptions are the flags of every command that reads bundles.
type sourceOptions struct {
	*globals
	preseed.Options
	requireFile string
}

func (o *sourceOptions) addFlags(f *pflag.FlagSet) {
	f.StringVarP(&o.Namespace, "namespace", "n", "", "containerd `namespace` of bundles that are given as files")
	f.StringVar(&o.Platform, "platform", "", "`platform` that the images must run on (default: the host's)")
	f.BoolVar(&o.AllPlatforms, "all-platforms", false, "want every platform that an image has")
	f.IntVar(&o.Jobs, "jobs", 0, "`number` of bundles and blobs that are worked on at once (0: as seedbed thinks best)")
	f.StringVar(&o.Name, "name", "", "`reference` for the one image that has no name")
	f.StringArrayVar(&o.Require, "require", nil, "fail unless the image with this `reference` is there (repeatable)")
	f.StringVar(&o.requireFile, "require-file", "", "`file` of references that must be there, one a line")
	f.BoolVar(&o.Strict, "strict", false, "warnings fail")
	f.BoolVar(&o.FailFast, "fail-fast", false, "stop at the first bundle that fails")
	f.BoolVar(&o.IgnoreMissing, "ignore-missing", false, "a source that does not exist is no error")
	setEnvironment(f, "namespace", "CONTAINERD_NAMESPACE")
}

func (o *sourceOptions) check(f *pflag.FlagSet, args []string) error {
	switch {
	case o.Jobs < 0:
		return fmt.Errorf("flag --jobs: found %d: expected no less than 0", o.Jobs)
	case f.Changed("namespace") && len(args) == 0:
		return errors.New("flag --namespace: found without a SOURCE: expected a bundle file or - to bring into it (the manifest's preseed directory names its namespaces itself)")
	}
	return nil
}

// sources returns what args name, or the manifest's preseed directory.
func (o *sourceOptions) sources(ctx context.Context, args []string) ([]preseed.Source, error) {
	if len(args) == 0 {
		manifest, err := o.readManifest("system.preseed")
		if err != nil {
			return nil, err
		}
		if err := needNodes(manifest, "system.preseed"); err != nil {
			return nil, err
		}
		system := manifest.Tree().System
		args = []string{system.Preseed.FullPath()}
		o.Sandbox = daemon.SandboxImage(system.Conf.Containerd.FullPath())
	}
	var sources []preseed.Source
	for _, arg := range args {
		source := preseed.Source{Path: arg, Namespace: o.Namespace}
		if arg == "-" {
			source.Reader = interruptible(ctx, o.streams.In)
		}
		sources = append(sources, source)
	}
	return sources, nil
}

func (o *sourceOptions) readRequired() error {
	if o.requireFile == "" {
		return nil
	}
	data, err := readInput(o.requireFile)
	if err != nil {
		return input(err)
	}
	for line := range strings.Lines(string(data)) {
		if ref := strings.TrimSpace(line); ref != "" && !strings.HasPrefix(ref, "#") {
			o.Require = append(o.Require, ref)
		}
	}
	return nil
}

// storeOptions are the flags of every command that works on a store.
type storeOptions struct {
	address        string
	offline        bool
	containerdRoot string
	wait           time.Duration
}

func (o *storeOptions) addFlags(f *pflag.FlagSet, wait time.Duration) {
	f.StringVarP(&o.address, "address", "a", "", "containerd's `socket` (default: the manifest's)")
	f.BoolVar(&o.offline, "offline", false, "work on containerd's root, without a daemon")
	f.StringVar(&o.containerdRoot, "containerd-root", "", "containerd's root `directory` for --offline (default: the manifest's)")
	f.DurationVar(&o.wait, "wait", wait, "`duration` to wait for containerd")
	setEnvironment(f, "address", "CONTAINERD_ADDRESS")
}

func (o *storeOptions) check(f *pflag.FlagSet) error {
	switch {
	case o.offline && f.Changed("address"):
		return errors.New("flags --offline and --address: found both: expected one")
	case o.containerdRoot != "" && !o.offline:
		return errors.New("flag --containerd-root: found without --offline")
	case o.wait < 0:
		return fmt.Errorf("flag --wait: found %s: expected no less than 0", o.wait)
	}
	return nil
}

type importOptions struct {
	sourceOptions
	store storeOptions
}

func newImportCommand(g *globals) *cobra.Command {
	o := &importOptions{sourceOptions: sourceOptions{globals: g}}
	c := &cobra.Command{
		Use:   "import [SOURCE…]",
		Short: "Import bundles into containerd, or into its root without a daemon",
		Long: `Import brings every bundle of the sources into its containerd namespace. An image
gets its name only when every blob that its platform needs is in the store with
the right digest and size. One bad bundle does not stop the others.

A SOURCE is a preseed directory, whose sub-directories are namespaces, or, with
-n, a bundle file or - for standard input. Without one, system.preseed of the
manifest is used. With --offline no daemon is needed and none may run.`,
		Example: `  seedbed preseed import
  seedbed preseed import ./bundles -a /run/containerd/containerd.sock -o json
  seedbed preseed import app.tar -n k8s.io
  seedbed preseed import ./bundles --offline --containerd-root ./image/var/lib/containerd`,
		PreRunE: func(c *cobra.Command, args []string) error { return o.check(c.Flags(), args) },
		RunE:    func(c *cobra.Command, args []string) error { return runImport(c.Context(), o, args) },
	}
	o.addFlags(c.Flags())
	return c
}

func (o *importOptions) addFlags(f *pflag.FlagSet) {
	o.sourceOptions.addFlags(f)
	o.store.addFlags(f, time.Minute)
	addWantedFlags(f, &o.Options)
	f.BoolVar(&o.UnpinMissing, "unpin-missing", false, "unpin the images whose bundle has gone")
	f.BoolVar(&o.DryRun, "dry-run", false, "say what would be done, write nothing")
	f.BoolVar(&o.Link, "link", false, "offline, OCI layout directories: link blobs instead of copying them")
}

// addWantedFlags adds the flags that say how the store is to be once the bundles are in it.
func addWantedFlags(f *pflag.FlagSet, o *preseed.Options) {
	f.StringVar(&o.Snapshotter, "snapshotter", "", "`snapshotter` to unpack with")
	f.BoolVar(&o.Unpack, "unpack", false, "unpack the images' layers too")
	f.BoolVar(&o.NoPin, "no-pin", false, "do not pin the images against garbage collection by the kubelet")
	f.BoolVar(&o.DigestRefs, "digest-refs", false, "also name each image by its digest")
	setEnvironment(f, "snapshotter", "CONTAINERD_SNAPSHOTTER")
}

func (o *importOptions) check(f *pflag.FlagSet, args []string) error {
	if o.Link && !o.store.offline {
		return errors.New("flag --link: found without --offline")
	}
	if err := o.store.check(f); err != nil {
		return err
	}
	return o.sourceOptions.check(f, args)
}

// unpackGC is the garbage collector's percentage (runtime/debug.SetGCPercent) while layers are unpacked:
// 58 MiB of memory instead of 68, in the same time.
const unpackGC = 50

func runImport(ctx context.Context, o *importOptions, args []string) error {
	sources, err := o.sources(ctx, args)
	if err != nil {
		return err
	}
	if err := o.readRequired(); err != nil {
		return err
	}
	notify := notifier{o.globals}
	notify.Status("waiting for containerd")
	store, closeStore, err := o.openStore(ctx, o.store, offline.Options{ReadOnly: o.DryRun, Snapshotter: o.offlineSnapshotter()})
	if err != nil {
		return err
	}
	if o.Unpack {
		defer debug.SetGCPercent(debug.SetGCPercent(unpackGC))
	}
	o.Options.Progress = o.progressLines()
	o.Reconnect = o.reconnect(&closeStore, o.store)
	report, err := preseed.Import(ctx, store, sources, o.Options)
	if closeErr := closeStore(); err == nil {
		err = closeErr
	}
	if err := o.finish(report, err); err != nil {
		return err
	}
	notify.Ready(reportSummary(report))
	return nil
}

// offlineSnapshotter is the snapshotter that a store without a daemon has to be opened with.
func (o *sourceOptions) offlineSnapshotter() string {
	if !o.Unpack {
		return ""
	}
	return cmp.Or(o.Snapshotter, "overlayfs")
}

// openStore opens the store that the flags and the manifest name; the returned
// function makes what was written durable and closes it. How it is opened matters offline alone.
func (g *globals) openStore(ctx context.Context, o storeOptions, how offline.Options) (*preseed.Store, func() error, error) {
	if o.offline {
		return g.openOffline(ctx, o.containerdRoot, how)
	}
	address := o.address
	if address == "" {
		manifest, err := g.readManifest("ephemeral.containerd")
		if err != nil {
			return nil, nil, err
		}
		if err := needNodes(manifest, "ephemeral.containerd.client_socket"); err != nil {
			return nil, nil, err
		}
		address = manifest.Tree().Ephemeral.Containerd.ClientSocket.FullPath()
	}
	client, err := preseed.Connect(ctx, address, o.wait)
	if err != nil {
		return nil, nil, err
	}
	return preseed.NewStore(client), client.Close, nil
}

// reconnect returns how a containerd that went away is found again: as it was found, within the same
// wait. closeStore closes what was opened last. It is nil where there is no daemon.
func (o *sourceOptions) reconnect(closeStore *func() error, how storeOptions) func(context.Context) (*preseed.Store, error) {
	if how.offline {
		return nil
	}
	return func(ctx context.Context) (*preseed.Store, error) {
		o.log.Warn("containerd went away: waiting for it", "wait", how.wait)
		notifier{o.globals}.Extend(how.wait + 30*time.Second)
		store, closeNew, err := o.openStore(ctx, how, offline.Options{})
		if err != nil {
			return nil, err
		}
		closeOld := *closeStore
		*closeStore = func() error { return errors.Join(closeOld(), closeNew()) }
		return store, nil
	}
}

func (g *globals) openOffline(ctx context.Context, root string, how offline.Options) (*preseed.Store, func() error, error) {
	if root == "" {
		manifest, err := g.readManifest("data.containerd")
		if err != nil {
			return nil, nil, err
		}
		if err := needNodes(manifest, "data.containerd"); err != nil {
			return nil, nil, err
		}
		root = manifest.Tree().Data.Containerd.FullPath()
	}
	store, err := offline.Open(ctx, root, how)
	if err != nil {
		return nil, nil, err
	}
	return store.Preseed(), store.Close, nil
}

func newPreseedCheckCommand(g *globals) *cobra.Command {
	o := &sourceOptions{globals: g}
	c := &cobra.Command{
		Use:   "check [SOURCE…]",
		Short: "Read bundles and give a verdict per image",
		Long:  "Check reads every bundle, hashes its blobs and says of each image whether an import would succeed. It needs no containerd and no root.",
		Example: `  seedbed preseed check ./bundles
  seedbed preseed check app.tar -n k8s.io -o json`,
		PreRunE: func(c *cobra.Command, args []string) error { return o.check(c.Flags(), args) },
		RunE:    func(c *cobra.Command, args []string) error { return runPreseedCheck(c.Context(), o, args) },
	}
	o.addFlags(c.Flags())
	return c
}

func runPreseedCheck(ctx context.Context, o *sourceOptions, args []string) error {
	sources, err := o.sources(ctx, args)
	if err != nil {
		return err
	}
	if err := o.readRequired(); err != nil {
		return err
	}
	o.Options.Progress = o.progressLines()
	report, err := preseed.Check(ctx, sources, o.Options)
	return o.finish(report, err)
}

// finish says what a run came to: its warnings on standard error, its report, also that of a run
// that err ended, and as an error whatever makes the exit code another than 0.
func (o *sourceOptions) finish(report *preseed.Report, err error) error {
	if o.terminal != nil {
		o.terminal.set("")
	}
	if report == nil {
		return input(err)
	}
	for _, warning := range report.Warnings {
		o.log.Warn(warning)
	}
	if writeErr := o.writeReport(report); writeErr != nil {
		return errors.Join(err, writeErr)
	}
	switch code := reportCode(report); {
	case errors.Is(err, context.Canceled):
		return errors.New("interrupted: what the report says is done stays done")
	case err != nil:
		return err
	case code != exitOK:
		notifier{o.globals}.Status(reportSummary(report))
		return codeError(code)
	}
	return nil
}

// reportCode is the exit code for a report: what all bundles failed of, where
// they all failed of one kind, else exitSome.
func reportCode(report *preseed.Report) int {
	code := exitOK
	for _, required := range report.Required {
		if !required.Present {
			code = exitSome
		}
	}
	if report.Totals.Failed == 0 {
		return code
	}
	codes := map[int]bool{}
	for _, bundle := range report.Bundles {
		if bundle.Error != nil {
			codes[bundleCode(bundle.Error.Code)] = true
		}
	}
	if codes[exitUnavailable] {
		return exitUnavailable
	}
	if succeeded := report.Totals.Imported + report.Totals.Unchanged; succeeded > 0 || len(codes) != 1 {
		return exitSome
	}
	for only := range codes {
		return only
	}
	return exitSome
}

func (o *sourceOptions) writeReport(report *preseed.Report) error {
	if o.json() {
		return o.printJSON(report)
	}
	return writeReportText(o.streams.Out, report)
}

func writeReportText(w io.Writer, report *preseed.Report) error {
	var out strings.Builder
	for _, bundle := range report.Bundles {
		writeBundle(&out, bundle)
	}
	for _, required := range report.Required {
		if !required.Present {
			fmt.Fprintf(&out, "missing     required image %s\n", printable(required.Ref))
		}
	}
	fmt.Fprintln(&out, reportSummary(report))
	_, err := io.WriteString(w, out.String())
	return err
}
