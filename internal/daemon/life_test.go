package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// pidOfServer returns the process that listens at the machine's address.
func (m *machine) pidOfServer() int {
	m.t.Helper()
	var inUse *InUse
	if err := probe(m.options.Address); !errors.As(err, &inUse) || inUse.PID == 0 {
		m.t.Fatalf("who listens: %v", err)
	}
	return inUse.PID
}

// TestStatuses wants each thing that is waited for to be said, in its order, and more time to be asked for at the
// start and at the stop.
func TestStatuses(t *testing.T) {
	m := newMachine(t, realContainerd(t))
	m.start()
	m.waitReady()
	if err := m.stop(); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range m.events {
		got = append(got, strings.ReplaceAll(e, m.options.Address, "SOCKET"))
	}
	got = slices.DeleteFunc(got, func(e string) bool { return strings.HasPrefix(e, "containerd 2.") })
	want := []string{
		"checking what containerd needs", "waiting for the log FIFO to be read", "waiting for containerd to answer at SOCKET",
		"waiting for containerd's CRI plugin", "ready", "stopping", "stopping containerd",
	}
	if without := slices.DeleteFunc(slices.Clone(got), func(e string) bool { return e == "extend" }); !slices.Equal(without, want) {
		t.Errorf("it said\n%q, want\n%q", without, want)
	}
	if ready := slices.Index(got, "ready"); !slices.Contains(got[:ready], "extend") || !slices.Contains(got[ready:], "extend") {
		t.Errorf("it did not ask for more time at the start and at the stop: %q", got)
	}
}

// TestReadyMeansThatLogsAreRead: no READY=1 before the log FIFO has a reader, although containerd answers.
func TestReadyMeansThatLogsAreRead(t *testing.T) {
	m := newMachine(t, realContainerd(t))
	reading := make(chan struct{})
	m.options.RunscFIFOOpened = func(*os.File) {
		<-reading
		m.event("reading")
	}
	m.start()
	eventually(t, "containerd's answer", func() bool { return errors.As(probe(m.options.Address), new(*InUse)) })
	if m.count("ready") != 0 {
		t.Error("it is ready and its logs are not read")
	}
	close(reading)
	m.waitReady()
	if got := []int{slices.Index(m.events, "reading"), slices.Index(m.events, "ready")}; got[0] < 0 || got[0] > got[1] {
		t.Errorf("reading and ready came as events %d", got)
	}
}

// TestWatchdog: a containerd that is stopped answers no health call, and Alive is not called until it does again.
func TestWatchdog(t *testing.T) {
	m := newMachine(t, realContainerd(t))
	alive := make(chan struct{}, 1)
	m.options.Watchdog = 900 * time.Millisecond
	m.options.Alive = func() {
		select {
		case alive <- struct{}{}:
		default:
		}
	}
	m.start()
	m.waitReady()
	<-alive
	pid := m.pidOfServer()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
	silent := "containerd does not answer a health call within 300ms"
	eventually(t, silent, func() bool { return m.count(silent) > 0 })
	for answers := 0; ; answers++ { // one may have been under way
		select {
		case <-alive:
			if answers > 1 {
				t.Fatal("Alive is called for a containerd that is stopped")
			}
			continue
		case <-time.After(2 * m.options.Watchdog):
		}
		break
	}
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	select {
	case <-alive:
	case <-time.After(20 * time.Second):
		t.Error("Alive is not called any more, though containerd goes on")
	}
}

// TestUSR1 wants the signal to reach containerd, which writes its stacks into its TMPDIR and runs on.
func TestUSR1(t *testing.T) {
	m := newMachine(t, realContainerd(t))
	signals := make(chan os.Signal, 1)
	m.options.Signals = signals
	m.start()
	m.waitReady()
	pid := m.pidOfServer()
	signals <- syscall.SIGUSR1
	eventually(t, "the stacks", func() bool {
		files, _ := filepath.Glob(m.options.TempDir + "/containerd.*.stacks.log")
		return len(files) == 1
	})
	if m.pidOfServer() != pid {
		t.Error("another containerd answers after SIGUSR1")
	}
}

// TestPidfd: the child is signalled through a descriptor that stands for it alone (pidfd_open(2)), so that a
// process that gets its number later is never hit.
func TestPidfd(t *testing.T) {
	pidfds := func() int {
		links, err := filepath.Glob("/proc/self/fd/*")
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, link := range links {
			if to, _ := os.Readlink(link); strings.Contains(to, "pidfd") {
				n++
			}
		}
		return n
	}
	before := pidfds()
	m := newMachine(t, "")
	m.script("echo $$ > " + m.dir + "/pid\nexec sleep 600\n")
	m.start()
	m.pidOf("pid")
	if got := pidfds() - before; got != 1 {
		t.Errorf("found %d pidfds more with a child, want one", got)
	}
	if err := m.stop(); err != nil {
		t.Error(err)
	}
}

// TestSignalAfterTheEnd: a signal to a child that is gone goes nowhere.
func TestSignalAfterTheEnd(t *testing.T) {
	m := newMachine(t, "")
	m.script("exit 0\n")
	var g errgroup.Group
	c, err := startChild(&g, m.options, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	<-c.exited
	if err := c.signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("signal = %v, want os.ErrProcessDone", err)
	}
}

// TestCRINotLoaded: a CRI plugin that will never answer ends the start, with its own reason, and nothing waits for ever.
func TestCRINotLoaded(t *testing.T) {
	m := newMachine(t, realContainerd(t))
	config, err := os.ReadFile(m.options.ConfigFile)
	if err != nil {
		t.Fatal(err)
	}
	m.write("config.toml", strings.Replace(string(config), "[plugins.'io.containerd.cri.v1.images']",
		"[plugins.'io.containerd.cri.v1.images']\nsnapshotter = 'none'", 1), 0o644)
	m.start()
	var unfit *CRIError
	if err := m.wait(); !errors.As(err, &unfit) || !strings.Contains(err.Error(), `snapshotter "none"`) {
		t.Errorf("Run = %v, want a CRIError with the plugin's reason", err)
	}
	if m.count("ready") != 0 || !isAbsent(m.options.Address) {
		t.Error("it was ready, or left its socket")
	}
}
