package cmd_test

import (
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// notification is one datagram to the service manager, with its sender.
type notification struct {
	pid   int
	lines []string
}

// listen opens a notify socket as a service manager does (sd_notify(3)) and
// returns its address and what arrives on it.
func listen(t *testing.T) (string, <-chan notification) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	_ = raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1) })
	if err != nil {
		t.Fatal(err)
	}
	arrived := make(chan notification, 100)
	go func() {
		defer close(arrived)
		data, control := make([]byte, 4096), make([]byte, unix.CmsgSpace(unix.SizeofUcred))
		for {
			n, controls, _, _, err := conn.ReadMsgUnix(data, control)
			if err != nil {
				return
			}
			arrived <- notification{sender(control[:controls]), strings.Split(string(data[:n]), "\n")}
		}
	}()
	return path, arrived
}

func sender(control []byte) int {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil || len(messages) == 0 {
		return 0
	}
	credentials, err := unix.ParseUnixCredentials(&messages[0])
	if err != nil {
		return 0
	}
	return int(credentials.Pid)
}

// waitFor returns what arrived until the line did.
func waitFor(t *testing.T, arrived <-chan notification, line string) []notification {
	t.Helper()
	var all []notification
	deadline := time.After(30 * time.Second)
	for {
		select {
		case n := <-arrived:
			all = append(all, n)
			if slices.Contains(n.lines, line) {
				return all
			}
		case <-deadline:
			t.Fatalf("%s did not arrive within 30 s, but %v", line, all)
		}
	}
}

func seedbed(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	return exec.CommandContext(t.Context(), "seedbed", args...)
}

// place places a tree and returns its root, in a place that is short enough for
// its sockets.
func place(t *testing.T) string {
	t.Helper()
	root, err := os.MkdirTemp("", "seedbed-run-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	if out, err := seedbed(t, "--root", root, "storage", "place", "-q").CombinedOutput(); err != nil {
		t.Fatalf("storage place: %v\n%s", err, out)
	}
	return root
}

// TestRunNotifies is C01 and C11: exactly one READY=1, from seedbed itself and
// with containerd answering by then; SIGHUP changes nothing and is explained;
// STOPPING=1 at the end. containerd, which would say READY=1 as well, does not
// get the socket.
func TestRunNotifies(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("containerd needs root")
	}
	root := place(t)
	socket, arrived := listen(t)
	run := seedbed(t, "--root", root, "containerd", "run")
	run.Env = append(os.Environ(), "NOTIFY_SOCKET="+socket, "WATCHDOG_USEC=1000000")
	stderr, err := run.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	log := newLines(stderr)
	all := waitFor(t, arrived, "READY=1")
	if conn, err := net.Dial("unix", filepath.Join(root, "ephemeral/containerd/client.sock")); err != nil {
		t.Errorf("after READY=1: %v", err)
	} else {
		conn.Close()
	}
	before := children(t, run.Process.Pid)
	signalProcess(t, run, syscall.SIGHUP)
	log.waitFor(t, "ignored SIGHUP")
	if after := children(t, run.Process.Pid); len(before) != 1 || !slices.Equal(after, before) {
		t.Errorf("after SIGHUP: found children %s: expected the one from before, %s", after, before)
	}
	signalProcess(t, run, syscall.SIGTERM)
	all = append(all, waitFor(t, arrived, "STOPPING=1")...)
	<-log.ended
	if err := run.Wait(); err != nil {
		t.Errorf("after TERM: %v\n%s", err, log)
	}
	checkSenders(t, run.Process.Pid, all)
}

// TestQuietImportExtends: what is shown of the progress has no say in how long the
// service manager waits.
func TestQuietImportExtends(t *testing.T) {
	dir := t.TempDir()
	archive := filepath.Join(dir, "good.tar")
	if out, err := exec.CommandContext(t.Context(), "bundle", "oci", archive, "example.com/good:v1").CombinedOutput(); err != nil {
		t.Fatalf("bundle: %v\n%s", err, out)
	}
	socket, arrived := listen(t)
	command := seedbed(t, "preseed", "import", archive, "-n", "k8s.io", "--offline", "--containerd-root", filepath.Join(dir, "root"), "-q")
	command.Env = append(os.Environ(), "NOTIFY_SOCKET="+socket)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("import: %v\n%s", err, out)
	}
	waitFor(t, arrived, "EXTEND_TIMEOUT_USEC=30000000")
}

func signalProcess(t *testing.T, command *exec.Cmd, signal os.Signal) {
	t.Helper()
	if err := command.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

func checkSenders(t *testing.T, pid int, all []notification) {
	t.Helper()
	ready := 0
	for _, n := range all {
		if n.pid != pid {
			t.Errorf("%v came from process %d: expected %d", n.lines, n.pid, pid)
		}
		if slices.Contains(n.lines, "READY=1") {
			ready++
		}
	}
	if ready != 1 {
		t.Errorf("found %d READY=1: expected one", ready)
	}
}

// children are the child processes of a process: those whose fourth field of
// proc_pid_stat(5) names it.
func children(t *testing.T, pid int) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, file := range files {
		stat, _ := os.ReadFile(file) // an error: the process has ended meanwhile
		_, rest, _ := strings.Cut(string(stat), ") ")
		if fields := strings.Fields(rest); len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			found = append(found, filepath.Base(filepath.Dir(file)))
		}
	}
	return found
}

// lines are what a process has written so far.
type lines struct {
	mu    sync.Mutex
	text  strings.Builder
	more  chan struct{} // holds one when there is more than was looked at
	ended chan struct{} // closed at the end
}

func newLines(r io.Reader) *lines {
	l := &lines{more: make(chan struct{}, 1), ended: make(chan struct{})}
	go func() {
		defer close(l.ended)
		_, _ = io.Copy(l, r)
	}()
	return l
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default:
	}
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// waitFor returns when the text has come.
func (l *lines) waitFor(t *testing.T, text string) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for !strings.Contains(l.String(), text) {
		select {
		case <-l.more:
		case <-l.ended:
			t.Fatalf("%q did not come, but:\n%s", text, l)
		case <-deadline:
			t.Fatalf("%q did not come within 30 s, but:\n%s", text, l)
		}
	}
}
