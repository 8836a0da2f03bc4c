package cmd_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// running is a `containerd run` of a test that is ready.
type running struct {
	*exec.Cmd
	root    string
	arrived <-chan notification
	stderr  *os.File // the reading end
}

// startRun starts `containerd run` on a placed tree and returns when it is ready.
func startRun(t *testing.T, args ...string) *running {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("containerd needs root")
	}
	socket, arrived := listen(t)
	r := &running{root: place(t), arrived: arrived}
	r.Cmd = seedbed(t, append([]string{"--root", r.root, "containerd", "run"}, args...)...)
	r.Env = append(os.Environ(), "NOTIFY_SOCKET="+socket)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.stderr, r.Stderr = read, write
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	write.Close()
	t.Cleanup(func() {
		read.Close()
		_ = r.Process.Kill() // it may be gone already
	})
	waitFor(t, arrived, "READY=1")
	return r
}

// end sends TERM and wants exit code 0.
func (r *running) end(t *testing.T) {
	t.Helper()
	signalProcess(t, r.Cmd, syscall.SIGTERM)
	waitFor(t, r.arrived, "STOPPING=1")
	if err := r.Wait(); err != nil {
		t.Errorf("after TERM: %v", err)
	}
}

// TestCheckOfARunningOne: the tree's own containerd, which runs and answers, is named and is no fault; a second start
// is refused, with 75.
func TestCheckOfARunningOne(t *testing.T) {
	r := startRun(t)
	child := children(t, r.Process.Pid)
	if len(child) != 1 {
		t.Fatalf("found children %s: expected one", child)
	}
	out, err := seedbed(t, "--root", r.root, "containerd", "check").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "running  pid "+child[0]+": containerd ") || strings.Contains(string(out), "error") {
		t.Errorf("check: %v\n%s", err, out)
	}
	out, err = seedbed(t, "--root", r.root, "containerd", "run").CombinedOutput()
	want := "another containerd answers there, pid " + child[0] + " ("
	if code(err) != 75 || !strings.Contains(string(out), want) || !strings.Contains(string(out), "hint: stop it, or wait") {
		t.Errorf("a second run: %v: expected exit code 75, %q, and its hint\n%s", err, want, out)
	}
	if strings.Contains(string(out), "records") {
		t.Errorf("a second run, which carried nothing, counts records\n%s", out)
	}
	r.end(t)
}

// TestClosedStderr is C21: who read the log is gone, as a journal that is restarted; containerd runs on, and so
// does what drains the FIFO.
func TestClosedStderr(t *testing.T) {
	r := startRun(t)
	r.stderr.Close()
	fifo, err := os.OpenFile(filepath.Join(r.root, "ephemeral/containerd/runsc-logs.fifo"), os.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer fifo.Close()
	if err := fifo.SetWriteDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	line := []byte(strings.Repeat("x", 99) + "\n")
	for range 20000 { // more than a FIFO holds
		if _, err := fifo.Write(line); err != nil {
			t.Fatalf("write into the FIFO: %v", err)
		}
	}
	if out, err := seedbed(t, "--root", r.root, "containerd", "check").CombinedOutput(); err != nil || !strings.Contains(string(out), "running") {
		t.Errorf("check: %v\n%s", err, out)
	}
	r.end(t)
}

// TestInterrupt is C10: INT, and TERM behind it, end containerd once and in order: the socket is gone, what was in the
// FIFO is in the log.
func TestInterrupt(t *testing.T) {
	r := startRun(t)
	log := newLines(r.stderr)
	fifo := filepath.Join(r.root, "ephemeral/containerd/runsc-logs.fifo")
	if err := os.WriteFile(fifo, []byte("said before the end\n"), 0); err != nil {
		t.Fatal(err)
	}
	signalProcess(t, r.Cmd, syscall.SIGINT)
	signalProcess(t, r.Cmd, syscall.SIGTERM)
	if err := r.Wait(); err != nil {
		t.Errorf("after INT and TERM: %v\n%s", err, log)
	}
	<-log.ended
	if !strings.Contains(log.String(), "said before the end") {
		t.Errorf("a line from the FIFO is not in the log:\n%s", log)
	}
	if _, err := os.Lstat(filepath.Join(r.root, "ephemeral/containerd/client.sock")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket after the end: %v", err)
	}
}

// TestExitUnasked: a containerd that ends with 0 and was not asked to has failed, for the service manager too; its
// own codes are passed on.
func TestExitUnasked(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("containerd needs root")
	}
	for status, want := range map[int]int{0: 1, 1: 1, 3: 3} {
		root := place(t)
		script := filepath.Join(root, "fake")
		text := "#!/bin/sh\necho said at the end\nexit " + strconv.Itoa(status) + "\n"
		if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		out, err := seedbed(t, "--root", root, "containerd", "run", "--containerd", script).CombinedOutput()
		if code(err) != want || !strings.Contains(string(out), "seedbed: run containerd: it e") || !strings.Contains(string(out), ": said at the end") {
			t.Errorf("status %d: %v: expected exit code %d\n%s", status, err, want, out)
		}
	}
}

// TestUnheard: a service manager that cannot be reached is told of once.
func TestUnheard(t *testing.T) {
	root := place(t)
	run := seedbed(t, "--root", root, "containerd", "run", "--containerd", "/bin/true")
	run.Env = append(os.Environ(), "NOTIFY_SOCKET="+root+"/nobody")
	out, _ := run.CombinedOutput()
	if n := strings.Count(string(out), "notify the service manager"); n != 1 {
		t.Errorf("found %d warnings: expected one\n%s", n, out)
	}
}

// code is the exit code that an error of a command stands for.
func code(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return 0
}
