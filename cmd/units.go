package cmd

import (
	"cmp"
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
		"  seedbed units install --enable\n  seedbed units status",
		newUnitsShowCommand(g), newUnitsInstallCommand(g), newUnitsCheckCommand(g), newUnitsStatusCommand(g))
}

func newUnitsShowCommand(g *globals) *cobra.Command {
	var layout string
	c := &cobra.Command{
		Use:       "show [NAME…]",
		Short:     "Print the units",
		Long:      "Show prints the named units, or all of them, as they would be installed.",
		Example:   "  seedbed units show\n  seedbed units show seedbed-containerd.service",
		Args:      cobra.OnlyValidArgs,
		ValidArgs: units.Names(),
		RunE:      func(_ *cobra.Command, args []string) error { return runUnitsShow(g, layout, args) },
	}
	addLayoutFlag(c, &layout)
	return c
}

func addLayoutFlag(c *cobra.Command, layout *string) {
	c.Flags().StringVar(layout, "layout", "", "layout that the units are for: `node|fhs|FILE` (default: the manifest's, else the installed units')")
}

// declaredTree is the layout that the units are for.
type declaredTree struct {
	layout string // as the booted root knows it: the name of a built-in one, or a file's path in the root
	nodes  []storage.Node
	mounts []storage.Mount
}

// unitParams are the binary, the layout and the paths that go into the units.
func (g *globals) unitParams(layout string) (units.Params, error) {
	params := units.Params{Binary: units.FindBinary(g.root)}
	tree, err := g.declaredTree(layout)
	if err != nil {
		return params, err
	}
	params.Layout, params.Disks = tree.layout, units.Disks(tree.nodes, tree.mounts)
	params.Unlock = units.FindUnlock(g.root, params.Disks)
	for id, path := range map[string]*string{
		"data.containerd":                      &params.ContainerdRoot,
		"ephemeral.containerd":                 &params.ContainerdState,
		"ephemeral.containerd.runsc_logs_fifo": &params.RunscLogsFIFO,
		"ephemeral.containerd.tmp":             &params.Temp,
		"system.preseed":                       &params.Preseed,
	} {
		i := slices.IndexFunc(tree.nodes, func(n storage.Node) bool { return n.ID == id })
		if i < 0 {
			return params, &missingNode{id, tree.layout}
		}
		*path = tree.nodes[i].Path
	}
	return params, nil
}

// declaredTree is the tree of the layout that is named, else of the manifest, else of the units that are installed, else
// of the layout node. A manifest that is there and cannot be read is an error.
func (g *globals) declaredTree(layout string) (declaredTree, error) {
	if layout != "" {
		return g.treeOf(layout)
	}
	manifest, err := g.readManifest()
	if errors.Is(err, storage.ErrNoManifest) {
		return g.treeOf(g.installedLayout())
	}
	if err != nil {
		return declaredTree{}, err
	}
	if layout, err = g.layoutAtBoot(manifest.Layout, manifest.LayoutFile); err != nil {
		return declaredTree{}, err
	}
	return declaredTree{layout, manifest.Nodes, manifest.Mounts}, nil
}

// installedLayout is what the units place that are installed, as this host sees it.
func (g *globals) installedLayout() string {
	switch layout := units.InstalledLayout(g.root); {
	case layout == "":
		return "node"
	case filepath.IsAbs(layout):
		return filepath.Join(g.root, layout)
	default:
		return layout
	}
}

// treeOf is the tree of a layout that nothing may be placed of yet.
func (g *globals) treeOf(layout string) (declaredTree, error) {
	l, err := readLayout(layout)
	if err != nil {
		return declaredTree{}, err
	}
	file := ""
	if !slices.Contains(storage.BuiltinNames(), layout) {
		if file, err = filepath.Abs(layout); err != nil {
			return declaredTree{}, err
		}
	}
	layout, err = g.layoutAtBoot(l.Name, file)
	return declaredTree{layout, l.Nodes, l.Mounts}, err
}

// layoutAtBoot is a layout as the booted root knows it: the name of a built-in one, or the path in the root of the
// file that it is read from.
func (g *globals) layoutAtBoot(name, file string) (string, error) {
	if file == "" {
		return name, nil
	}
	if inside, ok := strings.CutPrefix(file, strings.TrimSuffix(g.root, "/")+"/"); ok {
		return "/" + inside, nil
	}
	return "", &layoutOutside{file: file, root: g.root}
}

// layoutOutside is a layout that a booted root will not have.
type layoutOutside struct{ file, root string }

func (e *layoutOutside) Error() string {
	return fmt.Sprintf("install units: the tree is placed from %q, which is outside of the root %q: expected a file that is there when it boots", e.file, e.root)
}

// Hint says how to keep the layout with the tree.
func (e *layoutOutside) Hint() string {
	kept := filepath.Join(e.root, "etc/seedbed/layout.json")
	return fmt.Sprintf("copy it to %s, run seedbed storage place --layout %s, and install the units again", kept, kept)
}

func runUnitsShow(g *globals, layout string, names []string) error {
	if len(names) == 0 {
		names = units.Names()
	}
	params, err := g.unitParams(layout)
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
	var (
		layout, unlock string
		enable         bool
	)
	c := &cobra.Command{
		Use:   "install",
		Short: "Install the units",
		Long: `Install writes the units under --root. With --enable they start at the next boot.
A second run writes only what differs.

Where a mount of the layout has a source or an encryption, install also writes
what brings the disks up: mount units, /etc/crypttab, and for systemd-repart what
makes the encrypted partitions. A crypttab or a mount of your own is left alone:
it has to agree, else nothing is written.`,
		Example: "  seedbed units install --enable\n  seedbed units install --root ./image --enable",
		Args:    cobra.NoArgs,
		RunE:    func(*cobra.Command, []string) error { return runUnitsInstall(g, layout, unlock, enable) },
	}
	c.Flags().BoolVar(&enable, "enable", false, "start the units at the next boot")
	c.Flags().StringVar(&unlock, "unlock", "", "what opens encrypted disks: `tpm2|KEYFILE` (default: as /etc/crypttab says, else tpm2)")
	addLayoutFlag(c, &layout)
	return c
}

func runUnitsInstall(g *globals, layout, unlock string, enable bool) error {
	params, err := g.unitParams(layout)
	if err != nil {
		return err
	}
	params.Unlock = cmp.Or(unlock, params.Unlock)
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
	fmt.Fprintf(g.streams.Out, "installed %d units under %s: %d changed\n", units.Count(params), g.root, len(changed))
	if len(changed) > 0 && g.root == "/" && util.IsRunningSystemd() {
		g.log.Info("hint: run `systemctl daemon-reload`")
	}
	return nil
}
