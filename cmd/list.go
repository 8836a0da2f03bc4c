package cmd

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"seedbed/preseed"
	"seedbed/preseed/offline"
)

type listOptions struct {
	*globals
	preseed.Options
	store storeOptions
}

func newListCommand(g *globals) *cobra.Command {
	o := &listOptions{globals: g}
	c := &cobra.Command{
		Use:   "list",
		Short: "List the images in the store that came from bundles",
		Long:  "List prints the images in the store that came from bundles, with their bundle, pin and state, in order of namespace and name.",
		Example: `  seedbed preseed list
  seedbed preseed list --offline --containerd-root ./image/var/lib/containerd -o json`,
		Args:    cobra.NoArgs,
		PreRunE: func(c *cobra.Command, _ []string) error { return o.store.check(c.Flags()) },
		RunE:    func(c *cobra.Command, _ []string) error { return runList(c.Context(), o) },
	}
	f := c.Flags()
	f.StringVarP(&o.Namespace, "namespace", "n", "", "containerd `namespace` (default: all)")
	f.StringVar(&o.Platform, "platform", "", "`platform` that the images must be complete for (default: the host's)")
	o.store.addFlags(f, 0)
	setEnvironment(f, "namespace", "CONTAINERD_NAMESPACE")
	return c
}

// listReport is the document of `preseed list -o json`.
type listReport struct {
	Schema string           `json:"schema"`
	Images []preseed.Listed `json:"images"`
}

func runList(ctx context.Context, o *listOptions) error {
	store, closeStore, err := o.openStore(ctx, o.store, offline.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	images, err := preseed.List(ctx, store, o.Options)
	if closeErr := closeStore(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	if o.json() {
		return o.printJSON(listReport{Schema: "seedbed.preseed.list/v1", Images: images})
	}
	for _, image := range images {
		writeListed(o.streams.Out, image)
	}
	_, err = fmt.Fprintln(o.streams.Out, count(len(images), "image", "images"))
	return err
}

func writeListed(w io.Writer, image preseed.Listed) {
	pin := "not pinned"
	if image.Pinned {
		pin = "pinned"
	}
	bundle := image.Bundle
	if image.Gone {
		bundle += " (gone)"
	}
	fmt.Fprintf(w, "%-11s %s %s %s from %s", image.State, image.Namespace, printable(image.Name), pin, printable(bundle))
	if image.Reason != "" {
		fmt.Fprintf(w, ": %s", printable(image.Reason))
	}
	fmt.Fprintln(w)
}
