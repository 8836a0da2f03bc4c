package daemon

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
)

func nodeConfig() ConfigOptions {
	return ConfigOptions{
		Root: "/data/containerd", State: "/ephemeral/containerd", Address: "/ephemeral/containerd/client.sock",
		CNIConf: "/ephemeral/containerd/cni", CNIBin: "/containerd/bin", RunscConfig: "/run/seedbed/runsc.toml",
		RunscRoot: "/ephemeral/containerd/runsc", RunscLogsFIFO: "/ephemeral/containerd/runsc-logs.fifo",
	}
}

// TestConfigIsEffective lets a real containerd read the configuration: every key is
// known to it and means what it shall.
func TestConfigIsEffective(t *testing.T) {
	program := realContainerd(t)
	for _, sandbox := range []string{"", "registry.example/pause:1"} {
		o := nodeConfig()
		o.Sandbox = sandbox
		data, err := RenderConfig(o)
		if err != nil {
			t.Fatal(err)
		}
		got := dump(t, program, data)
		runtimes := "plugins/io.containerd.cri.v1.runtime/containerd/runtimes/"
		for key, want := range map[string]any{
			"root": "/data/containerd", "state": "/ephemeral/containerd",
			"disabled_plugins": []any{"io.containerd.internal.v1.opt"},
			"plugins/io.containerd.server.v1.grpc/address":                         "/ephemeral/containerd/client.sock",
			"plugins/io.containerd.server.v1.ttrpc/address":                        "/ephemeral/containerd/client.sock.ttrpc",
			"plugins/io.containerd.cri.v1.images/pinned_images/sandbox":            o.sandbox(),
			"plugins/io.containerd.cri.v1.runtime/containerd/default_runtime_name": "runc",
			runtimes + "runc/runtime_type":                                         "io.containerd.runc.v2",
			runtimes + "runc/options/SystemdCgroup":                                true,
			runtimes + "runsc/runtime_type":                                        "io.containerd.runsc.v1",
			runtimes + "runsc/options/TypeUrl":                                     "io.containerd.runsc.v1.options",
			runtimes + "runsc/options/ConfigPath":                                  "/run/seedbed/runsc.toml",
			"plugins/io.containerd.cri.v1.runtime/cni/conf_dir":                    "/ephemeral/containerd/cni",
			"plugins/io.containerd.cri.v1.runtime/cni/bin_dirs":                    []any{"/containerd/bin"},
			"plugins/io.containerd.nri.v1.nri/disable":                             true,
			"timeouts/io.containerd.timeout.bolt.open":                             "10s",
		} {
			if value := lookUp(got, key); !reflect.DeepEqual(value, want) {
				t.Errorf("containerd takes %s as %v, want %v", key, value, want)
			}
		}
	}
}

// dump returns the configuration that containerd makes of data.
func dump(t *testing.T, program string, data []byte) map[string]any {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	var warnings bytes.Buffer
	cmd := exec.Command(program, "--config", path, "config", "dump")
	cmd.Stderr = &warnings
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("containerd config dump: %v\n%s", err, &warnings)
	}
	if warnings.Len() > 0 {
		t.Errorf("containerd warns: %s", &warnings)
	}
	var config map[string]any
	if err := toml.Unmarshal(out, &config); err != nil {
		t.Fatal(err)
	}
	return config
}

// lookUp follows the keys of path, which are parted by slashes.
func lookUp(table map[string]any, path string) any {
	var value any = table
	for key := range strings.SplitSeq(path, "/") {
		table, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		value = table[key]
	}
	return value
}

func TestConfigIsDeterministic(t *testing.T) {
	first, err := RenderConfig(nodeConfig())
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if again, _ := RenderConfig(nodeConfig()); !bytes.Equal(first, again) {
			t.Fatalf("the same options give\n%s\nand\n%s", first, again)
		}
	}
}

func TestConfigWithoutRunsc(t *testing.T) {
	o := nodeConfig()
	o.RunscConfig = ""
	if data, err := RenderConfig(o); err != nil || bytes.Contains(data, []byte("runsc")) {
		t.Errorf("a configuration without runsc.toml names runsc (%v):\n%s", err, data)
	}
}

func TestConfigWantsPaths(t *testing.T) {
	for _, o := range []ConfigOptions{
		{State: "/s", Address: "/a"},
		{Root: "/r", Address: "/a"},
		{Root: "/r", State: "/s"},
		{Root: "r", State: "/s", Address: "/a"}, // relative
	} {
		if _, err := RenderConfig(o); err == nil {
			t.Errorf("RenderConfig(%+v) = nil, want an error", o)
		}
	}
}

func TestRunscConfig(t *testing.T) {
	got, err := RenderRunscConfig(nodeConfig())
	if err != nil {
		t.Fatal(err)
	}
	var table map[string]any
	if err := toml.Unmarshal(got, &table); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"root": "/ephemeral/containerd/runsc",
		"runsc_config": map[string]any{
			"debug": "false", "debug-log": "/ephemeral/containerd/runsc-logs.fifo",
			"debug-log-format": "text", "panic-log": "/ephemeral/containerd/runsc-logs.fifo",
		},
	}
	if !reflect.DeepEqual(table, want) {
		t.Errorf("runsc.toml is\n%s\nwant %v", got, want)
	}
}
