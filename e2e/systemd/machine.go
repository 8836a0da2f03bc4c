// Package systemd boots a real systemd as process 1 of a machine made of fresh namespaces (mount, pid, uts, ipc,
// net, cgroup), for tests of what only a service manager can show: unit ordering, readiness, restarts, the journal.
//
// The machine's root is an empty tmpfs with the host's /usr in it, read-only; /etc, /var, /run, /tmp and /dev are its
// own. It boots in about half a second, and nothing of it is left on the host when the test ends.
package systemd

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

//go:embed boot.sh
var bootScript []byte

// Bind puts one of the host's files or directories into a machine.
type Bind struct {
	Host     string // absolute path on the host
	Machine  string // absolute path in the machine
	Writable bool
}

// Image is a file on the host that holds a file system, mounted in a machine and nowhere else.
type Image struct {
	Host    string // absolute path on the host
	Machine string // absolute path in the machine
	Type    string // "xfs"
	Options string // mount options, comma-separated; rw when it is empty
}

// Options says what a machine has besides /usr. The zero value is a machine with nothing more.
type Options struct {
	Binds []Bind
	// Images are mounted from loop devices that end with the machine.
	Images []Image
	// Files are written into the machine's root before it boots: absolute path to content, mode 0644.
	Files map[string]string
	// Target is the unit to boot to; basic.target when it is empty.
	Target string
	// BootTimeout bounds the wait for the service manager; 30 seconds when it is 0.
	BootTimeout time.Duration
}

func (o Options) withDefaults() Options {
	if o.Target == "" {
		o.Target = "basic.target"
	}
	if o.BootTimeout == 0 {
		o.BootTimeout = 30 * time.Second
	}
	return o
}

// Machine is a booted systemd.
type Machine struct {
	t       testing.TB
	cmd     *exec.Cmd
	dir     string // on the host: the mount point of the root, boot.sh, Options.Files
	console *console
	cgroups []hierarchy
	exited  chan struct{} // closed when process 1 is gone
	closed  sync.Once
	runs    atomic.Int64 // counts Try, for unit names
}

// Unable says why no machine can be booted here, or "" when one can.
func Unable() string {
	if os.Geteuid() != 0 {
		return "booting systemd in namespaces needs root"
	}
	if _, err := os.Stat("/usr/lib/systemd/systemd"); err != nil {
		return "systemd is not installed: " + err.Error()
	}
	for _, tool := range []string{"unshare", "nsenter", "pivot_root", "systemd-run", "dbus-daemon"} {
		if _, err := exec.LookPath(tool); err != nil {
			return err.Error()
		}
	}
	if err := probeNamespaces(); err != nil {
		return fmt.Sprintf("make namespaces: %v", err)
	}
	return ""
}

func probeNamespaces() error {
	probe := exec.Command("mount", "--make-rprivate", "/")
	probe.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces}
	out, err := probe.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// namespaces are those that the machine starts in; boot.sh adds the cgroup namespace once it is in its cgroups.
const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWNET

// Boot returns a machine whose service manager answers and has reached o.Target. It skips the test, with the reason,
// where no machine can be booted, and fails it with the console's output when the boot does not come to its end. The machine
// is killed and cleaned up when the test ends.
func Boot(t testing.TB, o Options) *Machine {
	t.Helper()
	if reason := Unable(); reason != "" {
		t.Skip(reason)
	}
	o = o.withDefaults()
	m := &Machine{t: t, dir: t.TempDir(), exited: make(chan struct{})}
	t.Cleanup(m.Close)
	if err := m.start(o); err != nil {
		t.Fatalf("boot machine: %v\n%s", err, m.Console())
	}
	if err := m.waitBooted(o); err != nil {
		t.Fatalf("boot machine: %v\n%s", err, m.Console())
	}
	m.Systemctl("log-target", "journal-or-kmsg") // the console is for what comes before the journal
	return m
}

// start makes the cgroups and starts process 1.
func (m *Machine) start(o Options) error {
	cgroups, err := hierarchies(fmt.Sprintf("seedbed-e2e-%d-%d", os.Getpid(), time.Now().UnixNano()))
	if err != nil {
		return err
	}
	m.cgroups = cgroups
	if err := makeCgroups(cgroups); err != nil {
		return err
	}
	binds, err := m.prepare(o)
	if err != nil {
		return err
	}
	if m.console, err = openConsole(); err != nil {
		return err
	}
	slave := m.console.slave
	args := append([]string{"-eu", m.path("boot.sh"), m.path("root"), slave.Name(), o.Target}, binds...)
	m.cmd = exec.Command("sh", args...)
	m.cmd.Env = append(os.Environ(), "CGROUPS="+words(cgroups))
	m.cmd.Stdout, m.cmd.Stderr = slave, slave
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces, Pdeathsig: syscall.SIGKILL}
	return m.startLocked()
}

// startLocked starts process 1 on a thread that lives as long as the machine: the parent-death signal, which takes
// the machine down when the test is killed, is bound to the thread and not to the process (prctl(2), PR_SET_PDEATHSIG).
func (m *Machine) startLocked() error {
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer close(m.exited)
		err := m.cmd.Start()
		started <- err
		if err == nil {
			_ = m.cmd.Wait() // a machine that is powered off or killed ends by a signal
		}
	}()
	return <-started
}

// prepare writes what boot.sh reads and returns the binds in its form.
func (m *Machine) prepare(o Options) ([]string, error) {
	if err := os.Mkdir(m.path("root"), 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(m.path("boot.sh"), bootScript, 0o644); err != nil {
		return nil, err
	}
	var binds []string
	for path, content := range o.Files {
		host := filepath.Join(m.path("files"), path)
		if err := os.MkdirAll(filepath.Dir(host), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(host, []byte(content), 0o644); err != nil {
			return nil, err
		}
		binds = append(binds, "rw:"+host+":"+path)
	}
	for _, b := range o.Binds {
		mode := "ro"
		if b.Writable {
			mode = "rw"
		}
		binds = append(binds, mode+":"+b.Host+":"+b.Machine)
	}
	for _, i := range o.Images {
		binds = append(binds, i.Type+","+cmp.Or(i.Options, "rw")+":"+i.Host+":"+i.Machine)
	}
	return binds, nil
}

// waitBooted waits until the service manager listens and the boot target is active.
func (m *Machine) waitBooted(o Options) error {
	ctx, cancel := context.WithTimeout(context.Background(), o.BootTimeout)
	defer cancel()
	for {
		if _, err := os.Stat(m.Path("/run/systemd/private")); err == nil {
			if m.enter(ctx, "systemctl", "is-active", "--quiet", o.Target).Run() == nil {
				return nil
			}
		}
		select {
		case <-m.exited:
			return fmt.Errorf("process 1 ended")
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", o.Target, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (m *Machine) path(name string) string { return filepath.Join(m.dir, name) }

// Path returns where the host sees the machine's file: for reading and writing it from the test. Absolute symbolic
// links on the way lead to the host's files, so it is for paths without such links.
func (m *Machine) Path(file string) string {
	return filepath.Join(fmt.Sprintf("/proc/%d/root", m.cmd.Process.Pid), file)
}

// Console returns what the machine wrote to its console: the boot script's errors and systemd's own log of
// the boot.
func (m *Machine) Console() string {
	if m.console == nil {
		return ""
	}
	return m.console.String()
}

// PowerOff shuts the machine down in order and fails the test when that takes longer than 30 seconds.
func (m *Machine) PowerOff() {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_ = m.enter(ctx, "systemctl", "poweroff").Run() // the connection may end before the answer
	select {
	case <-m.exited:
	case <-ctx.Done():
		m.t.Fatalf("power off: process 1 is still there after 30 seconds\n%s", m.Console())
	}
}

// Close kills the machine, if it is still there, and removes its cgroups. It may be called more than once.
func (m *Machine) Close() {
	m.closed.Do(func() {
		if m.cmd != nil && m.cmd.Process != nil {
			_ = m.cmd.Process.Kill() // it may be gone already
			<-m.exited
		}
		if m.console != nil {
			_ = m.console.Close()
		}
		if err := removeCgroups(m.cgroups); err != nil {
			m.t.Errorf("remove the machine's cgroups: %v", err)
		}
	})
}

func words(cgroups []hierarchy) string {
	all := make([]string, len(cgroups))
	for i, h := range cgroups {
		all[i] = h.word()
	}
	return strings.Join(all, " ")
}
