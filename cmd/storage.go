package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"seedbed/storage"
)

func newStorageCommand(g *globals) *cobra.Command {
	return newGroup("storage", "Place the node's tree and tell what is there",
		"Place the node's tree under --root, compare what is there with the manifest of it, and draw it.",
		"  seedbed storage place --root ./image\n  seedbed storage check\n  seedbed storage path ephemeral.containerd.client_socket",
		newPlaceCommand(g), newStorageCheckCommand(g), newShowCommand(g), newLayoutCommand(g), newPathCommand(g))
}

// readLayout takes the name of a built-in layout or the path of a file.
func readLayout(name string) (*storage.Layout, error) {
	if slices.Contains(storage.BuiltinNames(), name) {
		return storage.Builtin(name)
	}
	layout, err := storage.ReadLayout(name)
	return layout, input(err)
}

type placeOptions struct {
	*globals
	layout   string
	dryRun   bool
	mounts   string
	mode     storage.MountMode // what mounts says
	waitLock time.Duration
}

func newPlaceCommand(g *globals) *cobra.Command {
	o := &placeOptions{globals: g}
	c := &cobra.Command{
		Use:   "place",
		Short: "Place the tree and write the manifest",
		Long: `Place puts the layout's directories and FIFOs under the root with the owners and
modes that it declares, whatever the umask is, and writes the manifest once
everything is there. Sockets and files are reserved: the programs that own them
make them. What is there is never overwritten, emptied or removed; where
something of another kind stands in the way, nothing at all is done.

A layout's mounts are looked at for the root /: one that is required has to be
there as declared, else nothing is done; a tmpfs that is to be made is filled
before it is mounted, and never on top of another mount.`,
		Example: `  seedbed storage place
  seedbed storage place --root ./image --layout fhs
  seedbed storage place --dry-run -o json`,
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return o.check() },
		RunE:    func(c *cobra.Command, _ []string) error { return runPlace(c.Context(), o) },
	}
	o.addFlags(c.Flags())
	return c
}

func (o *placeOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.layout, "layout", "node", "layout to place: `node|fhs|FILE`")
	f.BoolVar(&o.dryRun, "dry-run", false, "say what would be done, write nothing")
	f.StringVar(&o.mounts, "mounts", "", "mount policies: `apply|ignore` (default: apply for the root /, ignore for another)")
	f.DurationVar(&o.waitLock, "wait-lock", 0, "`duration` to wait while another place works on this root")
}

func (o *placeOptions) check() error {
	switch o.mounts {
	case "":
		o.mode = storage.MountsAuto
	case "apply":
		o.mode = storage.MountsApply
	case "ignore":
		o.mode = storage.MountsIgnore
	default:
		return fmt.Errorf("flag --mounts: found %q: expected apply|ignore", o.mounts)
	}
	if o.waitLock < 0 {
		return fmt.Errorf("flag --wait-lock: found %s: expected no less than 0", o.waitLock)
	}
	return nil
}

func runPlace(ctx context.Context, o *placeOptions) error {
	defer debug.SetGCPercent(debug.SetGCPercent(1000)) // over soon: at boot, collecting takes longer than it is worth
	layout, err := readLayout(o.layout)
	if err != nil {
		return err
	}
	options := storage.PlaceOptions{
		Root: o.root, Manifest: o.manifest, Mounts: o.mode, WaitLock: o.waitLock,
	}
	if o.dryRun {
		plan, err := storage.NewPlan(ctx, layout, options)
		return o.report(plan, err)
	}
	result, err := storage.Place(ctx, layout, options)
	if result == nil {
		return err
	}
	if err := o.report(result.Plan, err); err != nil {
		return err
	}
	notifier{o.globals}.Ready(placeSummary(o, result.Plan))
	return nil
}

// placeReport is the document of `storage place -o json`.
type placeReport struct {
	Schema    string         `json:"schema"`
	Root      string         `json:"root"`
	Manifest  string         `json:"manifest"`
	DryRun    bool           `json:"dry_run,omitempty"`
	Changed   int            `json:"changed"`
	Unchanged int            `json:"unchanged"`
	Steps     []storage.Step `json:"steps"`
	Warnings  []string       `json:"warnings,omitempty"`
	Error     string         `json:"error,omitempty"`
	Hint      string         `json:"hint,omitempty"`
}

// report says what a plan came to. It returns the failure too.
func (o *placeOptions) report(plan *storage.Plan, failure error) error {
	if plan == nil {
		return failure
	}
	return errors.Join(o.writeReport(plan, failure), failure)
}

func (o *placeOptions) writeReport(plan *storage.Plan, failure error) error {
	for _, warning := range plan.Warnings {
		o.log.Warn(warning)
	}
	if !o.json() {
		return writePlan(o, plan, failure)
	}
	nodes, changed := declared(plan)
	document := placeReport{
		Schema: "seedbed.storage.report/v1", Root: o.root, Manifest: o.manifest, DryRun: o.dryRun,
		Changed: changed, Unchanged: nodes - changed, Steps: plan.Steps, Warnings: plan.Warnings,
	}
	if failure != nil {
		document.Error, document.Hint = failure.Error(), hint(failure)
	}
	if failure != nil && !o.dryRun {
		document.Changed, document.Unchanged = 0, 0
		document.Steps = conflicts(plan.Steps)
	}
	return o.printJSON(document)
}

// writePlan says what was done, or would be done. After a failure the error says
// what there is to say, and a plan that was not carried out is not shown.
func writePlan(o *placeOptions, plan *storage.Plan, failure error) error {
	if failure != nil && !o.dryRun {
		return nil
	}
	for _, step := range plan.Steps {
		if !o.quiet && step.Action != storage.ActionKeep && step.Action != storage.ActionReserve {
			fmt.Fprintln(o.streams.Out, stepLine(step))
		}
	}
	if failure != nil {
		return nil
	}
	_, err := fmt.Fprintln(o.streams.Out, placeSummary(o, plan))
	return err
}

// conflicts are the steps that stand in the way. They are what a refusal reports:
// the others were not done.
func conflicts(steps []storage.Step) []storage.Step {
	return slices.DeleteFunc(slices.Clone(steps), func(s storage.Step) bool { return s.Action != storage.ActionConflict })
}

func stepLine(s storage.Step) string {
	line := fmt.Sprintf("%-8s %s (%s)", s.Action, printable(s.Path), s.Kind)
	switch {
	case s.From != "" && s.To != "":
		line += fmt.Sprintf(": %s -> %s", printable(s.From), printable(s.To))
	case s.To != "":
		line += ": " + printable(s.To)
	}
	return line
}

func placeSummary(o *placeOptions, plan *storage.Plan) string {
	verb := "placed"
	if o.dryRun {
		verb = "would place"
	}
	nodes, changed := declared(plan)
	return fmt.Sprintf("%s %d nodes under %s: %d changed, %d unchanged", verb, nodes, printable(o.root), changed, nodes-changed)
}

// declared counts the declared nodes and those of them that change: not the
// parents that no node describes, and not orphans, which are not touched. A node
// may have several steps, but one that keeps it comes last.
func declared(plan *storage.Plan) (nodes, changed int) {
	changes := map[string]bool{} // by id
	for i := range plan.Steps {
		switch step := &plan.Steps[i]; {
		case step.ID == "" || step.Action == storage.ActionOrphan:
		case step.Changes() || step.Action == storage.ActionConflict:
			changes[step.ID] = changes[step.ID] || step.Changes()
		default:
			if _, counted := changes[step.ID]; !counted {
				nodes++
			}
		}
	}
	for _, yes := range changes {
		if yes {
			changed++
		}
	}
	return nodes + len(changes), changed
}

func newStorageCheckCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "Compare what is there with the manifest",
		Long:  "Check compares every node of the manifest with what is there and names each drift. It changes nothing.",
		Example: `  seedbed storage check
  seedbed storage check --root ./image -o json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return runStorageCheck(c.Context(), g) },
	}
}

// checkReport is the document of `storage check -o json`.
type checkReport struct {
	Schema string          `json:"schema"`
	Root   string          `json:"root"`
	Nodes  int             `json:"nodes"`
	Drift  []storage.Drift `json:"drift"`
}

func runStorageCheck(ctx context.Context, g *globals) error {
	manifest, err := g.readManifest()
	if err != nil {
		return err
	}
	drifts, err := storage.Check(ctx, manifest)
	if err != nil {
		return err
	}
	if err := writeDrift(g, manifest, drifts); err != nil {
		return err
	}
	if len(drifts) > 0 {
		return codeError(exitSome)
	}
	return nil
}

func writeDrift(g *globals, manifest *storage.Manifest, drifts []storage.Drift) error {
	if g.json() {
		return g.printJSON(checkReport{
			Schema: "seedbed.storage.check/v1", Root: manifest.Root, Nodes: len(manifest.Nodes),
			Drift: append([]storage.Drift{}, drifts...),
		})
	}
	for _, d := range drifts {
		fmt.Fprintf(g.streams.Out, "drift    %s (%s): found %s, expected %s\n", printable(d.Path), d.ID, printable(d.Got), printable(d.Want))
	}
	_, err := fmt.Fprintf(g.streams.Out, "checked %d nodes under %s: %d drifted\n", len(manifest.Nodes), printable(manifest.Root), len(drifts))
	return err
}

func newLayoutCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:       "layout [node|fhs]",
		Short:     "Print a built-in layout as JSON",
		Long:      "Layout prints a built-in layout as JSON, to be edited and placed with `storage place --layout FILE`.",
		Example:   "  seedbed storage layout > my.json\n  seedbed storage layout fhs",
		Args:      cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
		ValidArgs: storage.BuiltinNames(),
		RunE: func(_ *cobra.Command, args []string) error {
			layout, err := storage.Builtin(append(args, "node")[0])
			if err != nil {
				return err
			}
			return g.printJSON(layout)
		},
	}
}

func newPathCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:     "path ID",
		Short:   "Print one node's full path",
		Long:    "Path prints the full path of the node with that id in the manifest, for use in scripts.",
		Example: "  ctr -a \"$(seedbed storage path ephemeral.containerd.client_socket)\" images list",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			manifest, err := g.readManifest()
			if err != nil {
				return err
			}
			path, err := manifest.FullPath(args[0])
			if err != nil {
				return err
			}
			return writePath(g, args[0], path)
		},
	}
}

// pathReport is the document of `storage path -o json`.
type pathReport struct {
	Schema string `json:"schema"`
	ID     string `json:"id"`
	Path   string `json:"path"`
}

func writePath(g *globals, id, path string) error {
	if g.json() {
		return g.printJSON(pathReport{Schema: "seedbed.storage.path/v1", ID: id, Path: path})
	}
	_, err := io.WriteString(g.streams.Out, path+"\n")
	return err
}
