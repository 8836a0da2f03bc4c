package daemon

import (
	"bytes"
	"fmt"
	"path/filepath"

	"github.com/pelletier/go-toml/v2"
)

// DefaultSandbox is the image that CRI makes pods of unless another one is
// named: that of containerd 2.4.
const DefaultSandbox = "registry.k8s.io/pause:3.10.2"

// ConfigOptions are what the configurations are rendered from. Paths are absolute.
type ConfigOptions struct {
	// Root is where containerd keeps what must survive a reboot.
	Root string
	// State is where it keeps what must not.
	State string
	// Address is the path of the gRPC socket; that of ttrpc is the same with ".ttrpc" behind it.
	Address string
	// CNIConf holds the CNI configurations, CNIBin the plugins. Empty for containerd's defaults.
	CNIConf, CNIBin string
	// Sandbox is the image of pods' sandboxes, which CRI never removes. DefaultSandbox if empty.
	Sandbox string
	// RunscConfig is the path of runsc.toml; without it there is no runtime runsc.
	RunscConfig string
	// RunscRoot is where runsc keeps the state of its sandboxes.
	RunscRoot string
	// RunscLogsFIFO is the FIFO that runsc logs into.
	RunscLogsFIFO string
	// RunscDebug makes runsc log every system call; thousands of records a second.
	RunscDebug bool
}

// configVersion is the version of what is rendered: that of containerd 2.3 and later, which take an
// older one with a warning at each start. Older containerds refuse it; an image that brings one brings its
// own configuration too.
const configVersion = 4

// The sections of containerd's configuration
// (https://github.com/containerd/containerd/blob/main/docs/cri/config.md).
type (
	config struct {
		Version         int               `toml:"version"`
		Root            string            `toml:"root"`
		State           string            `toml:"state"`
		DisabledPlugins []string          `toml:"disabled_plugins"`
		Plugins         pluginsConfig     `toml:"plugins"`
		Timeouts        map[string]string `toml:"timeouts"`
	}
	serverConfig struct {
		Address string `toml:"address"`
	}
	pluginsConfig struct {
		GRPC    serverConfig  `toml:"io.containerd.server.v1.grpc"`
		TTRPC   serverConfig  `toml:"io.containerd.server.v1.ttrpc"`
		Images  imagesConfig  `toml:"io.containerd.cri.v1.images"`
		Runtime runtimeConfig `toml:"io.containerd.cri.v1.runtime"`
		NRI     nriConfig     `toml:"io.containerd.nri.v1.nri"`
	}
	imagesConfig struct {
		PinnedImages map[string]string `toml:"pinned_images"`
	}
	runtimeConfig struct {
		CNI        cniConfig        `toml:"cni,omitempty"`
		Containerd containerdConfig `toml:"containerd"`
	}
	cniConfig struct {
		BinDirs []string `toml:"bin_dirs,omitempty"`
		ConfDir string   `toml:"conf_dir,omitempty"`
	}
	containerdConfig struct {
		DefaultRuntimeName string                  `toml:"default_runtime_name"`
		Runtimes           map[string]runtimeClass `toml:"runtimes"`
	}
	runtimeClass struct {
		Type    string         `toml:"runtime_type"`
		Path    string         `toml:"runtime_path,omitempty"`
		Options map[string]any `toml:"options"`
	}
	nriConfig struct {
		Disable bool `toml:"disable"`
	}
)

// RenderConfig returns containerd's configuration for o: runtimes runc (with
// systemd's cgroups) and runsc, the CNI directories, and the pinned sandbox image. It names
// nothing outside of o: the plugin that makes /opt/containerd and puts it into
// the PATH and the NRI socket in /var/run are off, and a database that
// another process holds is an error after ten seconds, where containerd would wait for ever. The same
// options always give the same bytes.
func RenderConfig(o ConfigOptions) ([]byte, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	c := config{
		Version:         configVersion,
		Root:            o.Root,
		State:           o.State,
		DisabledPlugins: []string{"io.containerd.internal.v1.opt"},
		Timeouts:        map[string]string{"io.containerd.timeout.bolt.open": "10s"},
		Plugins: pluginsConfig{
			GRPC:    serverConfig{Address: o.Address},
			TTRPC:   serverConfig{Address: o.Address + ".ttrpc"},
			Images:  imagesConfig{PinnedImages: map[string]string{"sandbox": o.sandbox()}},
			NRI:     nriConfig{Disable: true},
			Runtime: runtimeConfig{Containerd: o.runtimes(), CNI: o.cni()},
		},
	}
	return encode("# Rendered by seedbed from its manifest; an own config.toml in its place wins.\n", c)
}

func (o ConfigOptions) check() error {
	for _, p := range []struct{ what, path string }{{"root", o.Root}, {"state", o.State}, {"address", o.Address}} {
		if !filepath.IsAbs(p.path) {
			return fmt.Errorf("render containerd configuration: %s %q: expected an absolute path", p.what, p.path)
		}
	}
	return nil
}

func (o ConfigOptions) sandbox() string {
	if o.Sandbox == "" {
		return DefaultSandbox
	}
	return o.Sandbox
}

func (o ConfigOptions) cni() cniConfig {
	c := cniConfig{ConfDir: o.CNIConf}
	if o.CNIBin != "" {
		c.BinDirs = []string{o.CNIBin}
	}
	return c
}

func (o ConfigOptions) runtimes() containerdConfig {
	c := containerdConfig{
		DefaultRuntimeName: "runc",
		Runtimes: map[string]runtimeClass{
			"runc": {Type: "io.containerd.runc.v2", Options: map[string]any{"SystemdCgroup": true}},
		},
	}
	if o.RunscConfig != "" {
		c.Runtimes["runsc"] = runtimeClass{Type: "io.containerd.runsc.v1", Options: map[string]any{
			"TypeUrl":    "io.containerd.runsc.v1.options",
			"ConfigPath": o.RunscConfig,
		}}
	}
	return c
}

// shimConfig is what gVisor's shim reads from the file that ConfigPath names
// (https://gvisor.dev/docs/user_guide/containerd/configuration/; its keys are
// in gVisor's pkg/shim/v1/runsc/options.go). Everything in runsc_config becomes a flag of runsc.
type shimConfig struct {
	Root  string            `toml:"root,omitempty"`
	Runsc map[string]string `toml:"runsc_config"`
}

// RenderRunscConfig returns gVisor's runsc.toml for o: where runsc keeps its state and that
// it logs, panics included, into the FIFO. runsc's flag log is left alone, because the shim reads
// from there why a container did not start; runsc repeats such an error in its
// debug-log. The shim's own log_path is left alone too: the shim would truncate the file and hold it open for
// reading; without it containerd collects the shim's log.
func RenderRunscConfig(o ConfigOptions) ([]byte, error) {
	flags := map[string]string{"debug": fmt.Sprint(o.RunscDebug)}
	if o.RunscLogsFIFO != "" {
		flags["debug-log"] = o.RunscLogsFIFO
		flags["debug-log-format"] = "text"
		flags["panic-log"] = o.RunscLogsFIFO
	}
	return encode("# Rendered by seedbed from its manifest; an own runsc.toml in its place wins.\n",
		shimConfig{Root: o.RunscRoot, Runsc: flags})
}

func encode(head string, v any) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(head)
	if err := toml.NewEncoder(&b).SetIndentTables(true).Encode(v); err != nil {
		return nil, fmt.Errorf("render configuration: %w", err)
	}
	return b.Bytes(), nil
}
