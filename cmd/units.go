package cmd

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coreos/go-systemd/v22/util"
	"github.com/spf13/cobra"

	"seedbed/storage"
	"seedbed/units"
)

func newUnitsCommand(g *globals) *cobra.Command {
	return newGroup("units", "Show, install and check the systemd units",
		"Show, install and check the systemd units that run seedbed's jobs in order.",
		"  seedbed units install --enable\n  seedbed units check",
		newUnitsShowCommand(g), newUnitsInstallCommand(g), newUnitsCheckCommand(g))
}

func newUnitsShowCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:       "show [NAME…]",
		Short:     "Print the units",
		Long:      "Show prints the named units, or all of them, as they would be installed.",
		Example:   "  seedbed units show\n  seedbed units show seedbed-containerd.service",
		Args:      cobra.OnlyValidArgs,
		ValidArgs: units.Names(),
		RunE:      func(_ *cobra.Command, args []string) error { return runUnitsShow(g, args) },
	}
}

// unitParams are the binary, the layout and the paths that go into the units:
// those of the manifest, or of the layout node where nothing is placed yet. A
// manifest that is there and cannot be read is an error.
func (g *globals) unitParams() (units.Params, error) {
	params := units.Params{Binary: units.FindBinary(g.root)}
	manifest, err := storage.ReadManifest(g.manifest)
	if errors.Is(err, storage.ErrNoManifest) {
		return params, nil
	}
	if err != nil {
		return params, err
	}
	if params.Layout, err = g.layoutAtBoot(manifest); err != nil {
		return params, err
	}
	for id, path := range map[string]*string{
		"data.containerd":                      &params.ContainerdRoot,
		"ephemeral.containerd":                 &params.ContainerdState,
		"ephemeral.containerd.runsc_logs_fifo": &params.RunscLogsFIFO,
		"ephemeral.containerd.tmp":             &params.Temp,
		"system.preseed":                       &params.Preseed,
	} {
		i := slices.IndexFunc(manifest.Nodes, func(n storage.Node) bool { return n.ID == id })
		if i < 0 {
			return params, &missingNode{id, manifest.Layout}
		}
		*path = manifest.Nodes[i].Path
	}
	return params, nil
}

// layoutAtBoot is the layout as the booted root knows it: the name of a built-in
// one, or the path in the root of the file that it was placed from.
func (g *globals) layoutAtBoot(manifest *storage.Manifest) (string, error) {
	file := manifest.LayoutFile
	if file == "" {
		return manifest.Layout, nil
	}
	if inside, ok := strings.CutPrefix(file, strings.TrimSuffix(manifest.Root, "/")+"/"); ok {
		return "/" + inside, nil
	}
	return "", &layoutOutside{file: file, root: manifest.Root}
}

// layoutOutside is a layout that a booted root will not have.
type layoutOutside struct{ file, root string }

func (e *layoutOutside) Error() string {
	return fmt.Sprintf("install units: the tree was placed from %q, which is outside of the root %q: expected a file that is there when it boots", e.file, e.root)
}

// Hint says how to keep the layout with the tree.
func (e *layoutOutside) Hint() string {
	kept := filepath.Join(e.root, "etc/seedbed/layout.json")
	return fmt.Sprintf("copy it to %s, run seedbed storage place --layout %s, and install the units again", kept, kept)
}

func runUnitsShow(g *globals, names []string) error {
	if len(names) == 0 {
		names = units.Names()
	}
	params, err := g.unitParams()
	if err != nil {
		return err
	}
	texts := map[string]string{}
	for i, name := range names {
		text, err := units.Render(name, params)
		if err != nil {
			return err
		}
		texts[name] = string(text)
		if !g.json() {
			fmt.Fprintf(g.streams.Out, "%s# %s\n%s", strings.Repeat("\n", min(i, 1)), name, text)
		}
	}
	if g.json() {
		return g.printJSON(map[string]any{"schema": "seedbed.units/v1", "units": texts})
	}
	return nil
}

func newUnitsInstallCommand(g *globals) *cobra.Command {
	var enable bool
	c := &cobra.Command{
		Use:   "install",
		Short: "Install the units",
		Long: `Install writes the units under --root. With --enable they start at the next boot.
A second run writes only what differs.`,
		Example: "  seedbed units install --enable\n  seedbed units install --root ./image --enable",
		Args:    cobra.NoArgs,
		RunE:    func(*cobra.Command, []string) error { return runUnitsInstall(g, enable) },
	}
	c.Flags().BoolVar(&enable, "enable", false, "start the units at the next boot")
	return c
}

func runUnitsInstall(g *globals, enable bool) error {
	params, err := g.unitParams()
	if err != nil {
		return err
	}
	if !units.HasBinary(g.root, params) {
		g.log.Warn("no seedbed under the root where the units look for it: copy it there", "binary", params.Binary, "root", g.root)
	}
	changed, err := units.Install(g.root, params, enable)
	if err != nil {
		return err
	}
	if g.json() {
		return g.printJSON(map[string]any{"schema": "seedbed.units.install/v1", "changed": append([]string{}, changed...)})
	}
	for _, path := range changed {
		fmt.Fprintf(g.streams.Out, "written  %s\n", path)
	}
	fmt.Fprintf(g.streams.Out, "installed %d units under %s: %d changed\n", len(units.Names()), g.root, len(changed))
	if len(changed) > 0 && g.root == "/" && util.IsRunningSystemd() {
		g.log.Info("hint: run `systemctl daemon-reload`")
	}
	return nil
}

func newUnitsCheckCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:     "check",
		Short:   "Verify the units with systemd-analyze",
		Long:    "Check runs systemd-analyze verify over the units as they would be installed; anything it says is a failure.",
		Example: "  seedbed units check",
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return runUnitsCheck(c.Context(), g) },
	}
}

func runUnitsCheck(ctx context.Context, g *globals) error {
	params, err := g.unitParams()
	if err != nil {
		return err
	}
	if err := units.Check(ctx, params); err != nil {
		return err
	}
	if g.json() {
		return g.printJSON(map[string]any{"schema": "seedbed.units.check/v1", "ok": true})
	}
	_, err = fmt.Fprintf(g.streams.Out, "checked %d units: systemd-analyze has no complaint\n", len(units.Names()))
	return err
}
