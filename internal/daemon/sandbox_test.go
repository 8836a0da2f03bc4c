package daemon

import (
	"os"
	"path/filepath"
	"testing"
)

func TestSandboxImage(t *testing.T) {
	for name, test := range map[string]struct{ config, want string }{
		"version 3":      {"version = 3\n[plugins.'io.containerd.cri.v1.images'.pinned_images]\nsandbox = 'example.com/pause:3'\n", "example.com/pause:3"},
		"version 2":      {"version = 2\n[plugins.'io.containerd.grpc.v1.cri']\nsandbox_image = 'example.com/pause:2'\n", "example.com/pause:2"},
		"another's word": {"version = 2\n[plugins.'io.containerd.grpc.v1.cri']\n", ""},
		"no CRI":         {"version = 2\ndisabled_plugins = ['io.containerd.grpc.v1.cri']\n[plugins.'io.containerd.grpc.v1.cri']\nsandbox_image = 'example.com/pause:2'\n", ""},
		"damaged":        {"version = \n", ""},
	} {
		path := filepath.Join(t.TempDir(), "config.toml")
		if err := os.WriteFile(path, []byte(test.config), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := SandboxImage(path); got != test.want {
			t.Errorf("%s: sandbox image %q, want %q", name, got, test.want)
		}
	}
	if got := SandboxImage(filepath.Join(t.TempDir(), "none.toml")); got != DefaultSandbox {
		t.Errorf("no configuration: sandbox image %q, want the one that seedbed renders, %q", got, DefaultSandbox)
	}
	config, err := RenderConfig(ConfigOptions{Root: "/r", State: "/s", Address: "/a", Sandbox: "example.com/own:1"})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(path, config, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := SandboxImage(path); got != "example.com/own:1" {
		t.Errorf("the rendered configuration: sandbox image %q, want example.com/own:1", got)
	}
}
