package daemon

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"seedbed/e2e/tools"
)

// buildContainerd builds a program that the linker knows as cmd/containerd of a module, whose dependency on containerd has
// a version if that is another module.
func buildContainerd(t *testing.T, module, dependency string) string {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{
		"go.mod":                 "module " + module + "\ngo 1.24\n",
		"cmd/containerd/main.go": "package main\nfunc main() {}\n",
	}
	if dependency != "" {
		const path = "github.com/containerd/containerd/v2"
		files["go.mod"] += "require " + path + " " + dependency + "\nreplace " + path + " => ./dependency\n"
		files["dependency/go.mod"] = "module " + path + "\n"
		files["dependency/empty.go"] = "package empty\n"
		files["cmd/containerd/main.go"] = "package main\nimport _ \"" + path + "\"\nfunc main() {}\n"
	}
	for name, text := range files {
		writeProgram(t, dir, name, []byte(text))
	}
	program := filepath.Join(dir, "bin", name)
	cmd := exec.Command("go", "build", "-o", program, "./cmd/containerd")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=-mod=mod -trimpath", "GOPROXY=off", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return program
}

func TestNewestConfig(t *testing.T) {
	for program, want := range map[string]int{
		buildContainerd(t, "github.com/containerd/containerd", ""):    2,
		buildContainerd(t, "example.com/node", "v2.2.9"):              3,
		buildContainerd(t, "example.com/node", "v2.3.0"):              4,
		buildContainerd(t, "github.com/containerd/containerd/v2", ""): 0, // a checkout, whose version nobody knows
		writeProgram(t, t.TempDir(), "script", []byte("#!/bin/sh\n")): 0,
		tools.Build(t).Containerd:                                     configVersion, // the real one: seedbed's own version
	} {
		if got := newestConfig(program); got != want {
			t.Errorf("newestConfig(%q) = %d, want %d", program, got, want)
		}
	}
}

// TestTooOld: a containerd or a shim that is too old, such as a distribution's, is known before it fails.
func TestTooOld(t *testing.T) {
	first := buildContainerd(t, "github.com/containerd/containerd", "")
	m := newMachine(t, first)
	var old *VersionError
	if err := one(t, m.options, "config"); !errors.As(err, &old) || old.Newest != 2 || old.Version != configVersion {
		t.Errorf("containerd 1 with what is rendered: %v, want a VersionError", err)
	}
	m.options.Binary.Path = tools.Build(t).Containerd
	m.write("config.toml", "version = 5\n", 0o644)
	m.options.Root, m.options.State, m.options.Address = "", "", "/run/containerd/containerd.sock"
	if err := preflight(m.options); !errors.As(err, &old) || old.Newest != configVersion {
		t.Errorf("this containerd with a configuration of version 5: %v, want a VersionError", err)
	}
	config, err := RenderConfig(m.config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(first, m.dir+"/bin/containerd-shim-runc-v2"); err != nil {
		t.Fatal(err)
	}
	m.write("config.toml", string(config), 0o644)
	if found := findings(m.options, "shim"); len(found) != 2 || !errors.As(found[0].Err, new(*OldShim)) || !found[0].Warning {
		t.Errorf("a shim of containerd 1: %v, want a warning", found)
	}
	path := filepath.Dir(first)
	if b, err := Find("", "", path, config); err != nil || !b.Embedded {
		t.Errorf("Find = %v, %v with containerd 1 in PATH, want the embedded one", b, err)
	}
	if b, err := Find("", "", path, []byte("version = 2\n")); err != nil || b.Path != first {
		t.Errorf("Find = %v, %v for a configuration that containerd 1 reads, want it", b, err)
	}
	if b, err := Find("", path, "", config); err != nil || b.Path != first {
		t.Errorf("Find = %v, %v for one that the image brings, want it", b, err)
	}
}
