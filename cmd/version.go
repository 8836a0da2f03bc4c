package cmd

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// versionReport is the document of `version -o json`.
type versionReport struct {
	Schema     string `json:"schema"`
	Version    string `json:"version"`
	Revision   string `json:"revision,omitempty"`
	Containerd string `json:"containerd"`
	Go         string `json:"go"`
	Platform   string `json:"platform"`
}

func newVersionCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the versions of seedbed and of its containerd",
		Long:    "Version prints the version of seedbed, of the containerd inside it, and of the Go that built it.",
		Example: "  seedbed version\n  seedbed version -o json",
		Args:    cobra.NoArgs,
		RunE:    func(*cobra.Command, []string) error { return runVersion(g) },
	}
}

func runVersion(g *globals) error {
	v := readVersion()
	if g.json() {
		return g.printJSON(v)
	}
	revision := ""
	if v.Revision != "" {
		revision = " (" + v.Revision + ")"
	}
	_, err := fmt.Fprintf(g.streams.Out, "seedbed %s%s\ncontainerd %s\n%s %s\n", v.Version, revision, v.Containerd, v.Go, v.Platform)
	return err
}

// readVersion takes the versions from what the Go tool has built into the
// program.
func readVersion() versionReport {
	v := versionReport{
		Schema: "seedbed.version/v1", Version: "unknown", Containerd: "unknown",
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Version = info.Main.Version
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			v.Revision = setting.Value
		}
	}
	for _, module := range info.Deps {
		if module.Path == "github.com/containerd/containerd/v2" {
			v.Containerd = module.Version
		}
	}
	return v
}
