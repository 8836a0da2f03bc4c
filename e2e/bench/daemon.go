package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// daemon is a containerd with a root, state and socket of its own.
type daemon struct {
	root    string
	dir     string // state, socket, configuration: short, for a socket's path is at most 107 bytes
	address string
	programs
	process *exec.Cmd
	output  bytes.Buffer
}

// startTimeout is how long a daemon may take until it says that it is ready.
const startTimeout = 30 * time.Second

// newDaemon prepares a daemon without starting it.
func newDaemon(p programs, root, dir string) (*daemon, error) {
	d := &daemon{root: root, dir: dir, address: filepath.Join(dir, "containerd.sock"), programs: p}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return d, os.WriteFile(d.config(), d.configuration(), 0o600)
}

func (d *daemon) config() string { return filepath.Join(d.dir, "config.toml") }

// configuration leaves out what an image store does without, CRI above all: it makes the daemon start faster, and so
// the bars of the offline rows harder to meet.
func (d *daemon) configuration() []byte {
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
`, d.root, filepath.Join(d.dir, "state"), d.address)
}

// start starts the daemon and returns when it says READY=1 (sd_notify(3)), as a unit of Type=notify does: no polling
// disturbs it.
func (d *daemon) start(ctx context.Context) error {
	path := filepath.Join(d.dir, "notify.sock")
	notify, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: path})
	if err != nil {
		return err
	}
	defer os.Remove(path)
	defer notify.Close()
	d.output.Reset()
	d.process = exec.Command(d.containerd, "--config", d.config())
	d.process.Env = append(os.Environ(), "NOTIFY_SOCKET="+path)
	d.process.Stdout, d.process.Stderr = &d.output, &d.output
	d.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // ^C is for bench, which stops it
	if err := d.process.Start(); err != nil {
		d.process = nil
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = notify.SetReadDeadline(time.Now()) })
	defer stop()
	if err := awaitReady(notify); err != nil {
		_ = d.kill()
		return fmt.Errorf("start containerd: %w: %s", err, tail(d.output.Bytes()))
	}
	return ctx.Err()
}

func awaitReady(notify *net.UnixConn) error {
	if err := notify.SetReadDeadline(time.Now().Add(startTimeout)); err != nil {
		return err
	}
	message := make([]byte, 4096)
	for {
		n, err := notify.Read(message)
		if err != nil {
			return err
		}
		if bytes.Contains(message[:n], []byte("READY=1")) {
			return nil
		}
	}
}

// stop ends the daemon as its service manager would. One that does not run is fine.
func (d *daemon) stop() error { return d.end(syscall.SIGTERM) }

func (d *daemon) kill() error { return d.end(syscall.SIGKILL) }

func (d *daemon) end(signal syscall.Signal) error {
	if d.process == nil {
		return nil
	}
	process := d.process
	d.process = nil
	if err := process.Process.Signal(signal); err != nil {
		return err
	}
	err := process.Wait()
	if err != nil && signal == syscall.SIGTERM {
		return fmt.Errorf("stop containerd: %w: %s", err, tail(d.output.Bytes()))
	}
	return nil
}

// cpu returns the CPU time that the running daemon has used, in the kernel's ticks of 10 ms (proc_pid_stat(5)).
func (d *daemon) cpu() time.Duration {
	if d == nil || d.process == nil {
		return 0
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", d.process.Process.Pid))
	if err != nil {
		return 0
	}
	const userField, tick = 11, 10 * time.Millisecond // counted after the name, which may hold anything
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < userField+2 {
		return 0
	}
	user, _ := strconv.ParseInt(fields[userField], 10, 64)
	system, _ := strconv.ParseInt(fields[userField+1], 10, 64)
	return time.Duration(user+system) * tick
}

// empty removes every image of the store and all that belongs to it, and waits until it is gone from the disk.
func (d *daemon) empty(ctx context.Context) error {
	for _, kind := range []struct{ list, remove []string }{
		{[]string{"leases", "ls", "-q"}, []string{"leases", "rm", "--sync"}},
		{[]string{"images", "ls", "-q"}, []string{"images", "rm", "--sync"}},
		{[]string{"content", "ls", "-q"}, []string{"content", "rm"}},
	} {
		found, err := d.ask(ctx, kind.list...)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			continue
		}
		if _, err := d.ask(ctx, append(kind.remove, found...)...); err != nil {
			return err
		}
	}
	return d.awaitEmpty(ctx)
}

// awaitEmpty looks at the disk until no blob is left: what is removed without --sync goes with the next collection.
func (d *daemon) awaitEmpty(ctx context.Context) error {
	const patience, pause = 10 * time.Second, 20 * time.Millisecond
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(pause) {
		if len(blobs(d.root)) == 0 || ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return fmt.Errorf("empty the store: found %d blobs %s after it", len(blobs(d.root)), patience)
}

// blobs returns the blobs in the content store of a containerd root; none where there is no store.
func blobs(root string) []fs.FileInfo {
	paths, _ := filepath.Glob(filepath.Join(root, "io.containerd.content.v1.content", "blobs", "*", "*")) // the pattern is good
	var found []fs.FileInfo
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil { // a collection may take it meanwhile
			found = append(found, info)
		}
	}
	return found
}

// ask runs ctr and returns the words of its output.
func (d *daemon) ask(ctx context.Context, args ...string) ([]string, error) {
	cmd := exec.CommandContext(ctx, d.ctr, append([]string{"-a", d.address, "-n", namespace}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", cmd, err, tail(stderr.Bytes()))
	}
	return strings.Fields(string(out)), nil
}
