package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"seedbed/units"
)

func newUnitsCheckCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "Verify the units with systemd-analyze",
		Long: `Check runs systemd-analyze verify over the units as they would be installed, and
over those that are installed under --root, edited ones and drop-ins included.
Anything it says is a failure. A unit that was edited is named and is none.`,
		Example: "  seedbed units check\n  seedbed units check --root ./image",
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return runUnitsCheck(c.Context(), g) },
	}
}

func runUnitsCheck(ctx context.Context, g *globals) error {
	params, err := g.unitParams("")
	if err != nil {
		return err
	}
	found, err := units.Find(g.root, params)
	if err != nil {
		return err
	}
	if err := units.Check(ctx, params); err != nil {
		return err
	}
	if err := units.CheckFound(ctx, g.root, params, found); err != nil {
		return fmt.Errorf("installed under %s: %w", g.root, err)
	}
	if g.json() {
		return g.printJSON(map[string]any{"schema": "seedbed.units.check/v1", "ok": true, "units": found})
	}
	installed := 0
	for _, f := range found {
		if f.File != units.Absent {
			installed++
		}
		if f.File == units.Edited || f.File == units.Masked {
			fmt.Fprintf(g.streams.Out, "%-8s %s\n", f.File, f.Path)
		}
		for _, d := range f.DropIns {
			fmt.Fprintf(g.streams.Out, "%-8s %s\n", "drop-in", printable(d))
		}
	}
	_, err = fmt.Fprintf(g.streams.Out, "checked %d units, %d of them installed under %s: systemd-analyze has no complaint\n", len(found), installed, printable(g.root))
	return err
}

func newUnitsStatusCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Say how the units are: installed, enabled, active, and with what result",
		Long: `Status says of each unit whether it is installed as shipped, enabled and active,
how its last run ended, and what it says of itself. It asks the running systemd
(exit 69 without one), and ends with 1 when a unit failed.`,
		Example: "  seedbed units status\n  seedbed units status -o json",
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return runUnitsStatus(c.Context(), g) },
	}
}

// unitStatus is one unit in the document of `units status -o json`.
type unitStatus struct {
	units.Status
	File    units.State `json:"file"`
	DropIns []string    `json:"drop_ins,omitempty"`
	Failed  bool        `json:"failed,omitempty"`
}

func runUnitsStatus(ctx context.Context, g *globals) error {
	if g.root != "/" {
		return &usageError{command: "seedbed units status", err: errors.New("flag --root: systemd knows the units of the root / only: look at an image with `seedbed units check`")}
	}
	params, err := g.unitParams("")
	if err != nil {
		return err
	}
	found, err := units.Find(g.root, params)
	if err != nil {
		return err
	}
	var names []string
	for _, f := range found {
		names = append(names, f.Name)
	}
	running, err := units.Running(ctx, names)
	if err != nil {
		return err
	}
	all := make([]unitStatus, len(running))
	for i, s := range running {
		all[i] = unitStatus{Status: s, Failed: s.Failed(), File: units.Absent}
		if at := slices.IndexFunc(found, func(f units.Found) bool { return f.Name == template(s.Name) }); at >= 0 {
			all[i].File, all[i].DropIns = found[at].File, found[at].DropIns
		}
	}
	return g.reportUnits(all)
}

// template returns the name of the unit's file: that of the template for an instance.
func template(name string) string {
	before, instance, ok := strings.Cut(name, "@")
	if !ok {
		return name
	}
	return before + "@" + instance[strings.LastIndex(instance, "."):]
}

func (g *globals) reportUnits(all []unitStatus) error {
	if g.json() {
		if err := g.printJSON(map[string]any{"schema": "seedbed.units.status/v1", "units": all}); err != nil {
			return err
		}
	} else if err := writeUnits(g.streams.Out, all); err != nil {
		return err
	}
	if slices.ContainsFunc(all, func(s unitStatus) bool { return s.Reload }) {
		g.log.Warn("files of units changed since systemd read them: run `systemctl daemon-reload`")
	}
	if slices.ContainsFunc(all, func(s unitStatus) bool { return s.Failed }) {
		return codeError(exitSome)
	}
	return nil
}

func writeUnits(out io.Writer, all []unitStatus) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "UNIT\tFILE\tENABLED\tACTIVE\tRESULT\tSTATUS")
	for _, s := range all {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", printable(s.Name), s.file(), dash(s.Enabled), s.active(), s.result(), printable(s.Text))
	}
	return table.Flush()
}

func (s *unitStatus) file() string {
	if n := len(s.DropIns); n > 0 {
		return fmt.Sprintf("%s, %s", s.File, count(n, "drop-in", "drop-ins"))
	}
	return string(s.File)
}

func (s *unitStatus) active() string {
	if s.Load != "loaded" {
		return s.Load
	}
	return fmt.Sprintf("%s (%s)", s.Active, s.Sub)
}

func (s *unitStatus) result() string {
	if s.Exit != 0 {
		return fmt.Sprintf("%s %d", s.Result, s.Exit)
	}
	return dash(s.Result)
}

// dash stands for nothing in a table.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
