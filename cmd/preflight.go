package cmd

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"seedbed/internal/daemon"
)

func newContainerdCheckCommand(g *globals) *cobra.Command {
	o := &runOptions{globals: g}
	c := &cobra.Command{
		Use:     "check",
		Short:   "Say, before it is run, what would go wrong",
		Long:    "Check looks at everything that `containerd run` needs: the binary, the configuration, the socket's path, the FIFO, the runtimes' shims. It writes nothing. A containerd that runs on the tree and answers is named, and is no fault.",
		Example: "  seedbed containerd check",
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return runContainerdCheck(c.Context(), o) },
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
	Running  *runningReport     `json:"running,omitempty"`
	Findings []preflightFinding `json:"findings"`
}

// runningReport is the containerd that runs on the tree already.
type runningReport struct {
	PID     int    `json:"pid"`
	Version string `json:"version"`
}

type preflightFinding struct {
	Check   string `json:"check"`
	Warning bool   `json:"warning,omitempty"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

func runContainerdCheck(ctx context.Context, o *runOptions) error {
	manifest, err := o.readManifest(containerdNodes()...)
	if err != nil {
		return err
	}
	options, err := o.daemonOptions(manifest)
	if err != nil {
		return err
	}
	config, err := o.configuration(manifest)
	if err != nil {
		return err
	}
	options.ConfigFile, options.Config = cmp.Or(config.Path, renderedConfig), config.Containerd
	report := preflightReport{
		Schema: "seedbed.containerd.check/v1", Binary: options.Binary.String(), Config: config.Path,
		Findings: []preflightFinding{},
	}
	running := daemon.FindRunning(ctx, options)
	if running != nil {
		report.Running = &runningReport{PID: running.PID, Version: running.Version}
	}
	var fatal []daemon.Finding
	for _, f := range daemon.Preflight(options) {
		if running.Holds(f) {
			continue
		}
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
	if r := report.Running; r != nil {
		fmt.Fprintf(o.streams.Out, "%-8s pid %d: containerd %s answers\n", "running", r.PID, printable(r.Version))
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
