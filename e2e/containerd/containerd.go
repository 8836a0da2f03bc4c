// Package containerd starts a real containerd for a test, with a root, state and socket of its own.
package containerd

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/client"

	"seedbed/e2e/tools"
)

// startTimeout is how long a daemon may take until it answers.
const startTimeout = 30 * time.Second

// Daemon is a containerd that belongs to one test.
type Daemon struct {
	Root    string // its root directory
	Address string // its socket
	state   string
	config  string
	binary  string
	process *exec.Cmd
	log     bytes.Buffer
}

// New prepares a daemon without starting it. The test is skipped where a containerd cannot run.
// Whatever runs when the test ends is killed.
func New(t testing.TB) *Daemon {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: containerd mounts and changes owners")
	}
	dir, err := os.MkdirTemp("", "seedbed-ctrd-") // short: a socket's path is at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	d := &Daemon{
		Root: filepath.Join(dir, "root"), state: filepath.Join(dir, "state"),
		Address: filepath.Join(dir, "containerd.sock"), config: filepath.Join(dir, "config.toml"),
		binary: tools.Build(t).Containerd,
	}
	if err := os.WriteFile(d.config, d.configuration(), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Kill)
	return d
}

// Start returns a running daemon.
func Start(t testing.TB) *Daemon {
	t.Helper()
	d := New(t)
	d.Start(t)
	return d
}

// configuration leaves out what an image store does without: CRI, NRI and the snapshotters that
// need more than a directory.
func (d *Daemon) configuration() []byte {
	return fmt.Appendf(nil, `version = 3
root = %q
state = %q
disabled_plugins = [
  "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime", "io.containerd.nri.v1.nri",
  "io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.erofs", "io.containerd.snapshotter.v1.zfs",
]
[grpc]
address = %q
`, d.Root, d.state, d.Address)
}

// Start starts the daemon, for the first time or again, and waits until it answers.
func (d *Daemon) Start(t testing.TB) {
	t.Helper()
	d.Launch(t)
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	for ctx.Err() == nil {
		if _, err := os.Stat(d.Address); err == nil && d.answers(ctx) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	d.Kill()
	t.Fatalf("containerd does not answer at %s within %s:\n%s", d.Address, startTimeout, d.log.Bytes())
}

// Launch starts the daemon and does not wait for it.
func (d *Daemon) Launch(t testing.TB) {
	t.Helper()
	d.process = exec.Command(d.binary, "--config", d.config)
	d.process.Stdout, d.process.Stderr = &d.log, &d.log
	d.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := d.process.Start(); err != nil {
		t.Fatal(err)
	}
}

func (d *Daemon) answers(ctx context.Context) bool {
	c, err := client.New(d.Address, client.WithTimeout(time.Second))
	if err != nil {
		return false
	}
	defer c.Close()
	_, err = c.Version(ctx)
	return err == nil
}

// Stop ends the daemon as its service manager would.
func (d *Daemon) Stop(t testing.TB) {
	t.Helper()
	if d.process == nil {
		return
	}
	if err := d.process.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := d.process.Wait(); err != nil {
		t.Fatalf("stop containerd: %v\n%s", err, d.log.Bytes())
	}
	d.process = nil
}

// Signal sends the running daemon a signal.
func (d *Daemon) Signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := d.process.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// Kill ends the daemon at once, with its socket left behind.
func (d *Daemon) Kill() {
	if d.process == nil {
		return
	}
	_ = d.process.Process.Kill()
	_ = d.process.Wait()
	d.process = nil
}

// Client returns a client of the running daemon, closed when the test ends.
func (d *Daemon) Client(t testing.TB) *client.Client {
	t.Helper()
	c, err := client.New(d.Address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}
