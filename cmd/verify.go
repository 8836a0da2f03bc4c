package cmd

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"seedbed/preseed"
	"seedbed/preseed/offline"
)

type verifyOptions struct {
	sourceOptions
	store storeOptions
}

func newVerifyCommand(g *globals) *cobra.Command {
	o := &verifyOptions{sourceOptions: sourceOptions{globals: g}}
	c := &cobra.Command{
		Use:   "verify [SOURCE…]",
		Short: "Compare the image store with the bundles",
		Long: `Verify says of every image of the sources whether the store has it as its bundle
describes it: name, pin, and every blob that its platform needs, read and
hashed. What is missing or damaged makes the exit code 1; with --repair it is
imported again. A SOURCE is what it is for import.`,
		Example: `  seedbed preseed verify
  seedbed preseed verify --repair
  seedbed preseed verify ./bundles --offline --containerd-root ./image/var/lib/containerd -o json`,
		PreRunE: func(c *cobra.Command, args []string) error { return o.check(c.Flags(), args) },
		RunE:    func(c *cobra.Command, args []string) error { return runVerify(c.Context(), o, args) },
	}
	o.addFlags(c.Flags())
	return c
}

func (o *verifyOptions) addFlags(f *pflag.FlagSet) {
	o.sourceOptions.addFlags(f)
	o.store.addFlags(f, time.Minute)
	addWantedFlags(f, &o.Options)
	f.BoolVar(&o.Repair, "repair", false, "import again what is missing or damaged")
}

func (o *verifyOptions) check(f *pflag.FlagSet, args []string) error {
	if err := o.store.check(f); err != nil {
		return err
	}
	return o.sourceOptions.check(f, args)
}

func runVerify(ctx context.Context, o *verifyOptions, args []string) error {
	sources, err := o.sources(ctx, args)
	if err != nil {
		return err
	}
	if err := o.readRequired(); err != nil {
		return err
	}
	store, closeStore, err := o.openStore(ctx, o.store, offline.Options{ReadOnly: !o.Repair, Snapshotter: o.offlineSnapshotter()})
	if err != nil {
		return err
	}
	o.Options.Progress = o.progressLines()
	report, err := preseed.Verify(ctx, store, sources, o.Options)
	if closeErr := closeStore(); err == nil {
		err = closeErr
	}
	return o.finish(report, err)
}
