package cmd

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/spf13/cobra"

	"seedbed/internal/daemon"
	"seedbed/storage"
)

// configuration is the configuration that containerd gets, and the gVisor one
// that it points to. Path is set when it is a file of the image or of the user.
type configuration struct {
	Path       string
	Containerd []byte
	Runsc      []byte
}

// The files that are rendered.
const (
	renderedConfig = "containerd.toml"
	renderedRunsc  = "runsc.toml"
)

// renderDir is where they lie: beside the manifest that they are made of.
func (o *runOptions) renderDir() string { return filepath.Dir(o.manifest) }

// daemonNodes are the nodes without which there is no containerd to run.
func daemonNodes() []string {
	return []string{
		"system.bin", "data.containerd", "ephemeral.containerd", "ephemeral.containerd.client_socket", "ephemeral.containerd.cni",
		"ephemeral.containerd.runsc", "ephemeral.containerd.runsc_logs_fifo", "ephemeral.containerd.tmp",
	}
}

// configuration returns the user's, the image's, or a rendered one. With a *[daemon.ConfigError] it still
// has the path of what cannot be read.
func (o *runOptions) configuration(manifest *storage.Manifest) (configuration, error) {
	tree := manifest.Tree()
	for _, path := range []string{o.config, tree.System.Conf.Containerd.FullPath()} {
		if path == "" {
			continue
		}
		data, err := daemon.ReadConfig(path)
		if err == nil || path == o.config || !errors.Is(err, fs.ErrNotExist) {
			return configuration{Path: path, Containerd: data}, err
		}
	}
	if err := needNodes(manifest, daemonNodes()...); err != nil {
		return configuration{}, err
	}
	return o.render(tree)
}

// render returns what is rendered from the tree; gVisor's configuration is not where the image has
// one.
func (o *runOptions) render(tree *storage.Root) (configuration, error) {
	options := daemonConfig(tree, filepath.Join(o.renderDir(), renderedRunsc))
	own := tree.System.Conf.Runsc.FullPath()
	_, err := daemon.ReadConfig(own)
	hasOwn := err == nil
	switch {
	case hasOwn:
		options.RunscConfig = own
	case !errors.Is(err, fs.ErrNotExist):
		return configuration{Path: own}, err
	}
	containerd, err := daemon.RenderConfig(options)
	if err != nil || hasOwn {
		return configuration{Containerd: containerd}, err
	}
	runsc, err := daemon.RenderRunscConfig(options)
	return configuration{Containerd: containerd, Runsc: runsc}, err
}

func daemonConfig(tree *storage.Root, runscConfig string) daemon.ConfigOptions {
	runtime := tree.Ephemeral.Containerd
	return daemon.ConfigOptions{
		Root: tree.Data.Containerd.FullPath(), State: runtime.FullPath(),
		Address: runtime.ClientSocket.FullPath(),
		CNIConf: runtime.CNI.FullPath(), CNIBin: tree.System.Bin.FullPath(),
		RunscRoot: runtime.Runsc.FullPath(), RunscConfig: runscConfig, RunscLogsFIFO: runtime.RunscLogsFIFO.FullPath(),
	}
}

// placeConfig returns the path of the configuration to run with; a rendered one
// is written first, beside the manifest.
func (o *runOptions) placeConfig(config configuration) (string, error) {
	if config.Path != "" {
		return config.Path, nil
	}
	if config.Runsc != nil {
		if err := storage.WriteFile(filepath.Join(o.renderDir(), renderedRunsc), config.Runsc, 0o644); err != nil {
			return "", err
		}
	}
	path := filepath.Join(o.renderDir(), renderedConfig)
	return path, storage.WriteFile(path, config.Containerd, 0o644)
}

func newConfigCommand(g *globals) *cobra.Command {
	o := &runOptions{globals: g}
	c := &cobra.Command{
		Use:     "config",
		Short:   "Print the configuration that run would use",
		Long:    "Config prints the containerd configuration that `containerd run` would use: the user's, the image's, or the one that is rendered from the manifest.",
		Example: "  seedbed containerd config\n  seedbed containerd config -o json",
		Args:    cobra.NoArgs,
		RunE:    func(*cobra.Command, []string) error { return runConfig(o) },
	}
	c.Flags().StringVar(&o.config, "config", "", "containerd configuration `file` to use instead of the image's or the rendered one")
	return c
}

// configReport is the document of `containerd config -o json`; path is absent
// when the configuration is rendered.
type configReport struct {
	Schema     string `json:"schema"`
	Path       string `json:"path,omitempty"`
	Containerd string `json:"containerd"`
	Runsc      string `json:"runsc,omitempty"`
}

func runConfig(o *runOptions) error {
	manifest, err := o.globals.readManifest()
	if err != nil {
		return err
	}
	config, err := o.configuration(manifest)
	if err != nil {
		return err
	}
	if o.json() {
		return o.printJSON(configReport{
			Schema: "seedbed.containerd.config/v1", Path: config.Path,
			Containerd: string(config.Containerd), Runsc: string(config.Runsc),
		})
	}
	_, err = o.streams.Out.Write(config.Containerd)
	return err
}
