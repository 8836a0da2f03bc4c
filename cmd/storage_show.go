package cmd

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"seedbed/storage"
)

type showOptions struct {
	*globals
	layout  string
	builtin string
	usage   bool
}

func newShowCommand(g *globals) *cobra.Command {
	o := &showOptions{globals: g}
	c := &cobra.Command{
		Use:   "show",
		Short: "Draw the tree",
		Long: `Show draws the tree of the manifest, or of a layout: what each node is, its
mode, its owner where that is not root, and what is to be mounted there. Of a
manifest it also shows each node's state and compares it with what is there:
drift is marked, and has no exit code of its own (storage check has). On a
terminal the states have colours; NO_COLOR and TERM=dumb switch them off.

With -o json it prints the document itself.`,
		Example: `  seedbed storage show
  seedbed storage show --usage
  seedbed storage show --builtin
  seedbed storage show --layout my.json -o json`,
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return o.check() },
		RunE:    func(c *cobra.Command, _ []string) error { return runShow(c.Context(), o) },
	}
	f := c.Flags()
	f.StringVar(&o.layout, "layout", "", "show this layout: `node|fhs|FILE`")
	f.StringVar(&o.builtin, "builtin", "", "show a built-in layout: `node|fhs`")
	f.Lookup("builtin").NoOptDefVal = "node"
	f.BoolVar(&o.usage, "usage", false, "count what is there: the space that each node and what is below it takes")
	return c
}

func (o *showOptions) check() error {
	ofLayout := o.layout != "" || o.builtin != ""
	switch {
	case o.layout != "" && o.builtin != "":
		return errors.New("flags --layout and --builtin: found both: expected one")
	case o.usage && ofLayout:
		return errors.New("flag --usage: found a layout: expected a manifest, whose nodes are somewhere")
	case o.usage && o.json():
		return errors.New("flag --usage: found --output json: expected text, the document has no sizes")
	}
	return nil
}

func runShow(ctx context.Context, o *showOptions) error {
	if o.layout != "" || o.builtin != "" {
		layout, err := o.readLayout()
		if err != nil {
			return err
		}
		if o.json() {
			return o.printJSON(layout)
		}
		d := drawing{nodes: layout.Nodes, mounts: layout.Mounts, colour: o.colours()}
		return d.write(o.streams.Out)
	}
	manifest, err := o.readManifest()
	if err != nil {
		return err
	}
	if o.json() {
		return o.printJSON(manifest)
	}
	return o.draw(ctx, manifest)
}

// draw compares the manifest with what is there and draws both. What cannot be
// looked at is warned about.
func (o *showOptions) draw(ctx context.Context, manifest *storage.Manifest) error {
	d := drawing{nodes: manifest.Nodes, mounts: manifest.Mounts, colour: o.colours()}
	var err error
	if d.drift, err = storage.Check(ctx, manifest); err != nil {
		o.log.Warn(err.Error())
	}
	if o.usage {
		if d.usage, err = storage.Usage(ctx, manifest); err != nil {
			o.log.Warn(err.Error())
		}
	}
	if err := d.write(o.streams.Out); err != nil {
		return err
	}
	states := map[string]int{}
	for i := range manifest.Nodes {
		states[manifest.Nodes[i].State]++
	}
	_, err = fmt.Fprintf(o.streams.Out, "%d nodes under %s: %d present, %d reserved, %d absent, %d drifted\n", len(manifest.Nodes), printable(manifest.Root),
		states[storage.StatePresent], states[storage.StateReserved], states[storage.StateAbsent], len(d.drift))
	return err
}

func (o *showOptions) readLayout() (*storage.Layout, error) {
	if o.builtin != "" {
		return storage.Builtin(o.builtin)
	}
	layout, err := readLayout(o.layout)
	if err == nil {
		layout.Declaration = layout.Digest()
	}
	return layout, err
}
