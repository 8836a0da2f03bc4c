// Package tools builds the programs that end-to-end tests use beside seedbed: containerd, its runc shim and ctr, at
// the versions of the product's go.mod. tools.mod pins them, and the linters, so that go.mod need not.
package tools

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Paths are the built programs, in one directory.
type Paths struct {
	Dir        string
	Containerd string
	Ctr        string
	Shim       string // containerd-shim-runc-v2
}

const containerd = "github.com/containerd/containerd/v2/cmd/"

// Build returns the tools, built into the user's cache directory so that a second run only checks that they are up
// to date (about a second). The first build takes some minutes. It fails the test when they do not build.
func Build(t testing.TB) Paths {
	t.Helper()
	dir := cacheDir(t, "tools")
	build(t, dir, "-modfile="+filepath.Join("e2e", "tools", "tools.mod"),
		containerd+"containerd", containerd+"ctr", containerd+"containerd-shim-runc-v2")
	return Paths{
		Dir:        dir,
		Containerd: filepath.Join(dir, "containerd"),
		Ctr:        filepath.Join(dir, "ctr"),
		Shim:       filepath.Join(dir, "containerd-shim-runc-v2"),
	}
}

// Seedbed returns the program under test, built from the module as a release is: static and stripped.
func Seedbed(t testing.TB) string {
	t.Helper()
	dir := cacheDir(t, "seedbed")
	build(t, dir, ".")
	return filepath.Join(dir, "seedbed")
}

// cacheDir makes and returns a directory of the user's cache directory.
func cacheDir(t testing.TB, name string) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "seedbed-e2e", name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// build runs go build in the module's root, one test process at a time for each output directory. The flags that go
// into the build cache's keys are the same for all programs, so that they share what they compile.
func build(t testing.TB, dir string, args ...string) {
	t.Helper()
	defer lock(t, dir)()
	cmd := exec.Command("go", append([]string{"build", "-ldflags=-s -w", "-o", dir + "/"}, args...)...)
	cmd.Dir = moduleRoot(t)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
}

// lock takes the directory's lock, waiting for it, and returns how to give it back.
func lock(t testing.TB, dir string) (unlock func()) {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatalf("lock %s: %v", dir, err)
	}
	return func() { _ = f.Close() }
}

// moduleRoot returns the directory of the go.mod that the test runs under.
func moduleRoot(t testing.TB) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		t.Fatalf("go env GOMOD: %v", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out)))
}
