package cmd

import (
	"cmp"
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"seedbed/internal/daemon"
)

func newContainerdCheckCommand(g *globals) *cobra.Command {
	o := &runOptions{globals: g}
	c := &cobra.Command{
		Use:   "check",
		Short: "Say, before it is run, what would go wrong",
		Long: `Check looks at everything that ` + "`containerd run`" + ` needs, as that does itself before it
starts anything: the user, the binary, the configuration, the directories, the
socket's path, the FIFO, the database's lock, the runtimes' shims, overlay. It
writes nothing. A containerd that runs on the tree and answers is named, and is
no fault. On the host's own root programs are looked for where a system service
looks, whatever PATH the shell has; under another root in the shell's PATH.`,
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
	Code    int    `json:"code,omitempty"` // the exit code of a start that meets it
}

func runContainerdCheck(ctx context.Context, o *runOptions) error {
	options, config, err := o.prepare(o.childEnviron())
	if err != nil {
		return err
	}
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
		row := preflightFinding{Check: f.Check, Warning: f.Warning, Message: f.Err.Error(), Hint: hint(f.Err)}
		if !f.Warning {
			row.Code = exitCode(f.Err)
			fatal = append(fatal, f)
		}
		report.Findings = append(report.Findings, row)
	}
	if err := o.writePreflight(report); err != nil || len(fatal) == 0 {
		return err
	}
	return codeError(exitCode(&daemon.PreflightError{Findings: fatal}))
}

// childEnviron is the environment that a start would have: on the host's own root that is a unit's, with the PATH
// that the service manager gives it and not that of the shell.
func (o *runOptions) childEnviron() []string {
	if o.root != "/" {
		return os.Environ()
	}
	return append(os.Environ(), "PATH="+daemon.ServicePath)
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
	_, err := fmt.Fprintf(o.streams.Out, "checked containerd %s with %s: %s\n",
		printable(report.Binary), printable(cmp.Or(report.Config, "the rendered configuration")), count(len(report.Findings), "finding", "findings"))
	return err
}
