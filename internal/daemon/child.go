package daemon

import (
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sync/errgroup"
)

// ServicePath is the PATH that a system service has, by systemd's default (systemd.exec(5), "$PATH").
const ServicePath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// child is a started process. Its methods may be called from any goroutine.
type child struct {
	process *os.Process
	exited  chan struct{} // closed when state and err are set
	state   *os.ProcessState
	err     error
}

// startChild starts containerd in g, with its output going to output.
//
// The kernel kills the child when the thread that started it ends
// (PR_SET_PDEATHSIG(2const)), so that no containerd outlives this process and
// meets its successor. The Go runtime ends threads as it likes: so one goroutine
// keeps its thread to itself until the child is gone. The signal is KILL and not
// TERM because the next start must not have to wait for a child that is slow to
// stop; containerd's database and its shims are made for that.
//
// The child leads a process group of its own: what a terminal sends to the
// foreground group (Ctrl-C, hang-up) reaches it only by way of [Run], once. Its
// cgroup stays the same.
func startChild(g *errgroup.Group, o Options, output *os.File) (*child, error) {
	cmd := exec.Command(o.Binary.Path, "--config", o.ConfigFile)
	cmd.Args[0] = name
	cmd.Env = childEnv(o)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}

	c := &child{exited: make(chan struct{})}
	started := make(chan error, 1)
	g.Go(func() error {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		c.process = cmd.Process
		started <- err
		if err != nil {
			return nil
		}
		c.err = cmd.Wait()
		c.state = cmd.ProcessState
		close(c.exited)
		return nil
	})
	if err := <-started; err != nil {
		return nil, &BinaryError{Path: o.Binary.Path, Reason: Refused, Err: err}
	}
	return c, nil
}

// signal sends s to the child alone. os.Process signals through a pidfd: a child that is
// gone is never mistaken for another process.
func (c *child) signal(s os.Signal) error {
	return c.process.Signal(s)
}

// childEnv returns the environment of the child: what the service manager means
// for this process alone is taken out (sd_notify(3), sd_watchdog_enabled(3),
// sd_listen_fds(3), and JOURNAL_STREAM of systemd.exec(5), since the child's output is
// a pipe).
func childEnv(o Options) []string {
	env := slices.DeleteFunc(slices.Clone(o.Environ), func(v string) bool {
		key, _, _ := strings.Cut(v, "=")
		return key == "NOTIFY_SOCKET" || key == "JOURNAL_STREAM" || key == "PATH" ||
			strings.HasPrefix(key, "WATCHDOG_") || strings.HasPrefix(key, "LISTEN_") ||
			o.TempDir != "" && key == "TMPDIR"
	})
	env = append(env, "PATH="+childPath(o))
	if o.TempDir != "" {
		env = append(env, "TMPDIR="+o.TempDir)
	}
	return env
}

// childPath returns the PATH of the child.
func childPath(o Options) string {
	if o.BinDir == "" {
		return SearchPath(o.Environ)
	}
	return o.BinDir + ":" + SearchPath(o.Environ)
}

// SearchPath returns the PATH of an environment, [ServicePath] where it has none.
func SearchPath(environ []string) string {
	path := ServicePath
	for _, v := range environ {
		if value, ok := strings.CutPrefix(v, "PATH="); ok && value != "" {
			path = value
		}
	}
	return path
}
