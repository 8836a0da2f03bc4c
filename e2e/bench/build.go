package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// programs are the paths of what is measured.
type programs struct{ seedbed, ctr, containerd string }

// build builds the programs into dir: seedbed as a release is but for its
// symbols, ctr and containerd at the version of go.mod, with the
// flags of package tools, so that the build cache serves both. A cold build takes some minutes.
func build(ctx context.Context, dir, seedbed string) (programs, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return programs{}, err
	}
	unlock, err := lockDir(dir)
	if err != nil {
		return programs{}, err
	}
	defer unlock()
	const containerd = "github.com/containerd/containerd/v2/cmd/"
	err = goBuild(ctx, dir, "-ldflags=-s -w", "-modfile="+filepath.Join("e2e", "tools", "tools.mod"), containerd+"containerd", containerd+"ctr")
	if err != nil {
		return programs{}, err
	}
	p := programs{seedbed: seedbed, ctr: filepath.Join(dir, "ctr"), containerd: filepath.Join(dir, "containerd")}
	if seedbed == "" {
		p.seedbed = filepath.Join(dir, "seedbed")
		return p, goBuild(ctx, dir, "-trimpath", ".") // not stripped: perf names its functions
	}
	p.seedbed, err = filepath.Abs(seedbed)
	return p, err
}

// goBuild runs go build in the module's root.
func goBuild(ctx context.Context, dir string, args ...string) error {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return fmt.Errorf("find the module's root: %w", err)
	}
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-o", dir + "/"}, args...)...)
	cmd.Dir = filepath.Dir(strings.TrimSpace(string(out)))
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", cmd, err, out)
	}
	return nil
}

// lockDir waits for the directory's lock and returns how to give it back: two runs at once would build over each
// other's programs.
func lockDir(dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %q: %w", dir, err)
	}
	return func() { f.Close() }, nil
}
