// Package gvisor builds gVisor's runsc and its shim for tests that run real sandboxes: from their Go module, through a
// module of its own in tools, since what they require is not what the product requires.
package gvisor

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// Variable is the environment variable that has the programs built where they are not there yet, if it is not empty.
const Variable = "SEEDBED_E2E_GVISOR"

// Paths are the built programs.
type Paths struct {
	Runsc string
	Shim  string // containerd-shim-runsc-v1, which leaves its OOM score alone
}

// Build returns the programs from the user's cache directory, where they lie under a name made of all that they are
// built from. A cold build takes about three minutes of two CPUs; the test is skipped instead, unless [Variable] is set, so
// that a first run of all tests stays short. It fails the test when they do not build.
func Build(t testing.TB) Paths {
	t.Helper()
	source := sourceDir(t)
	dir := filepath.Join(cacheDir(t), fingerprint(t, source))
	paths := Paths{Runsc: filepath.Join(dir, "runsc"), Shim: filepath.Join(dir, "containerd-shim-runsc-v1")}
	if _, err := os.Stat(dir); err == nil {
		return paths
	}
	if os.Getenv(Variable) == "" {
		t.Skipf("gVisor is not built yet, which takes some minutes: %s=1 builds it, as `make e2e` does", Variable)
	}
	part, err := os.MkdirTemp(filepath.Dir(dir), "part-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(part)
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", part+"/",
		"gvisor.dev/gvisor/runsc", "./containerd-shim-runsc-v1")
	build.Dir = source
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", build, err, out)
	}
	if err := os.Rename(part, dir); err != nil && !errors.Is(err, fs.ErrExist) { // another test was quicker
		t.Fatal(err)
	}
	return paths
}

// sourceDir is the directory of the module that the programs are built through.
func sourceDir(t testing.TB) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		t.Fatalf("go env GOMOD: %v", err)
	}
	return filepath.Join(filepath.Dir(strings.TrimSpace(string(out))), "e2e", "gvisor", "tools")
}

func cacheDir(t testing.TB) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "seedbed-e2e", "gvisor")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// fingerprint stands for the toolchain and every file below source.
func fingerprint(t testing.TB, source string) string {
	t.Helper()
	sum := sha256.New()
	fmt.Fprintln(sum, runtime.Version(), runtime.GOARCH)
	err := filepath.WalkDir(source, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		fmt.Fprintf(sum, "%s %d\n%s", entry.Name(), len(data), data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", sum.Sum(nil)[:8])
}
