package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"seedbed/logpump"
)

// The scripts below stand in for a containerd that behaves in some way that a
// real one cannot be brought to; everything else runs with the real one.

// pidOf waits for the process that a script has written into the file pid.
func (m *machine) pidOf(file string) int {
	m.t.Helper()
	pid := 0
	eventually(m.t, "pid of "+file, func() bool {
		data, _ := os.ReadFile(filepath.Join(m.dir, file))
		pid, _ = strconv.Atoi(strings.TrimSpace(string(data)))
		return pid > 0
	})
	return pid
}

// alive reports whether pid runs; a zombie does not.
func alive(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(after, "Z") && !strings.HasPrefix(after, "X")
}

// TestRunAndStop guards C01, C09, C16 and C17 with a real containerd: it becomes
// ready once, the FIFO is made and read without anybody waiting, a stop is clean,
// and what was in the FIFO is not lost.
func TestRunAndStop(t *testing.T) {
	m := newMachine(t, realContainerd(t))
	old := syscall.Umask(0o277)
	m.start()
	m.waitReady()
	syscall.Umask(old)

	info, err := os.Lstat(m.options.RunscFIFO)
	if err != nil || info.Mode() != fs.ModeNamedPipe|0o600 {
		t.Errorf("FIFO is %v (%v), want a FIFO of mode 0600", info.Mode(), err)
	}
	write(t, m.options.RunscFIFO, "time=x\nI0131 15:04:05.000000       7 boot.go:12] hello\n\tlast words")
	if err := m.stop(); err != nil {
		t.Errorf("Run = %v after a stop that was asked for, want nil", err)
	}
	if m.count("ready") != 1 || m.count("stopping") != 1 {
		t.Errorf("ready and stopping were called %d and %d times, want once each", m.count("ready"), m.count("stopping"))
	}
	if !isAbsent(m.options.Address) {
		t.Error("the socket is still there after a stop")
	}
	if got := m.runsc.messages(); !slices.Equal(got, []string{"time=x", "hello\n\tlast words"}) {
		t.Errorf("FIFO gave %q, want both lines", got)
	}
	r, ok := m.log.find("containerd successfully booted")
	if !ok || r.Priority != logpump.Info || r.Time.IsZero() {
		t.Errorf("containerd's log has no parsed record of its start: %+v", r)
	}
}

func write(t *testing.T, fifo, text string) {
	t.Helper()
	f, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// TestChildEnvironment guards C01: what the service manager means for seedbed does not
// reach the child. And the child leads its own process group, in our cgroup.
func TestChildEnvironment(t *testing.T) {
	m := newMachine(t, "")
	m.options.Environ = []string{
		"NOTIFY_SOCKET=/run/x", "WATCHDOG_USEC=1", "WATCHDOG_PID=1", "LISTEN_FDS=1", "LISTEN_PID=1", "LISTEN_FDNAMES=a",
		"JOURNAL_STREAM=1:2", "PATH=/usr/bin:/bin", "TMPDIR=/tmp/else", "KEEP=1", "NOTIFY_SOCKETS=kept",
	}
	m.script(`tr '\0' '\n' < /proc/$$/environ > ` + m.dir + `/env.part && mv ` + m.dir + `/env.part ` + m.dir + "/env\n" +
		"echo $$ > " + m.dir + "/pid\nexec sleep 600\n")
	m.start()
	pid := m.pidOf("pid")
	data, err := os.ReadFile(m.dir + "/env")
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Fields(string(data))
	slices.Sort(got)
	want := []string{"KEEP=1", "NOTIFY_SOCKETS=kept", "PATH=" + m.options.BinDir + ":/usr/bin:/bin", "TMPDIR=" + m.options.TempDir}
	if !slices.Equal(got, want) {
		t.Errorf("the child's environment is %q, want %q", got, want)
	}
	if group, err := syscall.Getpgid(pid); err != nil || group != pid {
		t.Errorf("the child's process group is %d (%v), want its own", group, err)
	}
	ours, _ := os.ReadFile("/proc/self/cgroup")
	its, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if string(ours) != string(its) {
		t.Errorf("the child is in another cgroup:\n%s\n%s", its, ours)
	}
	if err := m.stop(); err != nil {
		t.Errorf("Run = %v after a stop before it was ready, want nil", err)
	}
}

// TestFailures guards C03: containerd's last words are in the error.
func TestFailures(t *testing.T) {
	program := realContainerd(t)
	for _, tt := range []struct {
		name, want string
		spoil      func(m *machine, config string) string
	}{
		{"version", "version", func(m *machine, c string) string {
			m.script("exec " + program + ` "$@"` + "\n") // which does not tell what it can read
			return strings.Replace(c, "version = 4", "version = 9", 1)
		}},
		{"root is a file", "not a directory", func(m *machine, c string) string {
			file := m.write("file", "", 0o600)
			m.options.Root = "" // any, so that it comes to a start
			return strings.Replace(c, m.config.Root, file, 1)
		}},
		{"required plugin", "io.containerd.none.v1.none", func(_ *machine, c string) string {
			return "required_plugins = ['io.containerd.none.v1.none']\n" + c
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine(t, program)
			config, err := os.ReadFile(m.options.ConfigFile)
			if err != nil {
				t.Fatal(err)
			}
			m.write("config.toml", tt.spoil(m, string(config)), 0o644)
			m.start()
			err = m.wait()
			var exit *ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(exit.LastWords, tt.want) {
				t.Errorf("Run = %v, want exit code 1 and %q in the last line", err, tt.want)
			}
		})
	}
}

// TestOldConfig guards C04: containerd starts with a configuration of an older version and a key that it does not
// know, and both its warnings are warnings.
func TestOldConfig(t *testing.T) {
	m := newMachine(t, realContainerd(t))
	m.write("config.toml", fmt.Sprintf("version = 3\nbogus = 1\nroot = %q\nstate = %q\n[grpc]\naddress = %q\n",
		m.config.Root, m.config.State, m.config.Address), 0o644)
	m.start()
	m.waitReady()
	for _, text := range []string{"Ignoring unknown key in TOML", "Configuration migrated from version 3"} {
		if r, ok := m.log.find(text); !ok || r.Priority != logpump.Warning {
			t.Errorf("no warning %q: %+v", text, r)
		}
	}
}

// TestLogFormats wants the same entries of containerd's two log formats.
func TestLogFormats(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			m := newMachine(t, realContainerd(t))
			config, err := os.ReadFile(m.options.ConfigFile)
			if err != nil {
				t.Fatal(err)
			}
			m.write("config.toml", string(config)+"\n[debug]\nformat = '"+format+"'\n", 0o644)
			before := time.Now()
			m.start()
			m.waitReady()
			r, ok := m.log.find("id=io.containerd.content.v1.content")
			if format == "json" {
				r, ok = m.log.find(`id="io.containerd.content.v1.content"`)
			}
			want := []logpump.Field{
				{Name: "CONTAINERD_ID", Value: "io.containerd.content.v1.content"},
				{Name: "CONTAINERD_TYPE", Value: "io.containerd.content.v1"},
			}
			if !ok || !strings.HasPrefix(r.Message, "loading plugin ") || r.Priority != logpump.Info || !slices.Equal(r.Fields, want) {
				t.Errorf("found %+v, want an entry of level info with the fields %v", r, want)
			}
			if r.Time.Before(before) || r.Time.After(time.Now()) {
				t.Errorf("its time is %v, want containerd's own", r.Time)
			}
		})
	}
}

// TestBinaryGone guards C05 for Run: nothing is started and nothing goes on.
func TestBinaryGone(t *testing.T) {
	m := newMachine(t, "/nowhere/containerd")
	m.start()
	var bad *BinaryError
	if err := m.wait(); !errors.As(err, &bad) || bad.Reason != Absent {
		t.Errorf("Run = %v, want a BinaryError", err)
	}
}

// TestBinaryRefused: what the system refuses to start, here for want of its interpreter, is a
// BinaryError too.
func TestBinaryRefused(t *testing.T) {
	m := newMachine(t, writeProgram(t, t.TempDir(), "containerd", []byte("#!/nowhere/sh\n")))
	m.start()
	var bad *BinaryError
	if err := m.wait(); !errors.As(err, &bad) || bad.Reason != Refused || bad.ExitCode() != 126 {
		t.Errorf("Run = %v, want a BinaryError", err)
	}
}

// TestKilled guards C12 and C06: the signal is named, and the socket that is left
// behind does not hinder the next start.
func TestKilled(t *testing.T) {
	m := newMachine(t, realContainerd(t))
	m.start()
	m.waitReady()
	var inUse *InUse
	if err := probe(m.options.Address); !errors.As(err, &inUse) || inUse.PID == 0 {
		t.Fatalf("who listens: %v", err)
	}
	if err := syscall.Kill(inUse.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	var exit *ExitError
	if err := m.wait(); !errors.As(err, &exit) || exit.Signal != syscall.SIGKILL || exit.ExitCode() != 137 || exit.LastWords != "" {
		t.Errorf("Run = %v, want it to name signal 9 and to say nothing that has to do with something else", err)
	}
	if isAbsent(m.options.Address) {
		t.Fatal("there is no stale socket, the test shows nothing")
	}
	m.ready = make(chan struct{})
	m.start()
	m.waitReady()
	if err := m.stop(); err != nil {
		t.Errorf("Run on a stale socket = %v", err)
	}
}

// TestStartOverFile guards C06: an empty file where the socket belongs does not hinder a start.
func TestStartOverFile(t *testing.T) {
	m := newMachine(t, realContainerd(t))
	m.write("state/c.sock", "", 0o600)
	m.start()
	m.waitReady()
	if err := m.stop(); err != nil {
		t.Error(err)
	}
}

// TestSecondContainerd guards C14: another one on the same root is found at
// once, and named, whether its socket or its database is in the way.
func TestSecondContainerd(t *testing.T) {
	first := newMachine(t, realContainerd(t))
	first.start()
	first.waitReady()
	var inUse *InUse

	second := newMachine(t, first.options.Binary.Path)
	config := second.config
	config.Root = first.config.Root
	data, err := RenderConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	second.write("config.toml", string(data), 0o644)
	second.start()
	if err := second.wait(); !errors.As(err, &inUse) || inUse.PID == 0 || !strings.HasSuffix(inUse.Path, "meta.db") {
		t.Errorf("Run on a root in use = %v, want InUse with the process", err)
	}
	third := newMachine(t, first.options.Binary.Path)
	third.options.ConfigFile, third.options.Address = first.options.ConfigFile, first.options.Address
	third.start()
	if err := third.wait(); !errors.As(err, &inUse) || inUse.Path != first.options.Address {
		t.Errorf("Run on a socket in use = %v, want InUse", err)
	}
}

// TestSlowStart guards C15: a start may take its time, and its time only.
func TestSlowStart(t *testing.T) {
	m := newMachine(t, "")
	m.script("sleep 2\nexec " + realContainerd(t) + ` "$@"` + "\n")
	m.start()
	m.waitReady()
	if err := m.stop(); err != nil {
		t.Error(err)
	}

	m = newMachine(t, "")
	m.script("echo still reading\nexec sleep 600\n")
	m.options.StartTimeout = 300 * time.Millisecond
	m.start()
	err := m.wait()
	var late *StartTimeout
	if !errors.As(err, &late) || !errors.Is(err, ErrStartTimeout) || late.LastWords != "still reading" {
		t.Errorf("Run = %v, want a StartTimeout with the last line", err)
	}
}

// TestStop guards C09: TERM is sent once, and KILL to a child that does not heed it.
func TestStop(t *testing.T) {
	m := newMachine(t, "")
	m.script("trap 'echo TERM' TERM\necho $$ > " + m.dir + "/pid\nwhile :; do sleep 0.05; done\n")
	m.options.StopTimeout = 500 * time.Millisecond
	m.start()
	pid := m.pidOf("pid")
	var exit *ExitError
	if err := m.stop(); !errors.As(err, &exit) || !exit.Killed || exit.Signal != syscall.SIGKILL {
		t.Errorf("Run = %v, want that it was killed", err)
	}
	if got := m.log.messages(); !slices.Equal(got, []string{"TERM"}) {
		t.Errorf("the child said %q, want one TERM", got)
	}
	if alive(pid) {
		t.Error("the child is alive")
	}
}

// TestHonestExit wants the exit code of a child that ends by itself. 0 is 1 then: it must not look like success.
func TestHonestExit(t *testing.T) {
	for code, want := range map[int]int{0: 1, 3: 3} {
		m := newMachine(t, "")
		m.script("echo last\nexit " + strconv.Itoa(code) + "\n")
		m.start()
		var exit *ExitError
		if err := m.wait(); !errors.As(err, &exit) || exit.ExitCode() != want || exit.LastWords != "last" {
			t.Errorf("Run = %v after status %d, want exit code %d and the last line", err, code, want)
		}
	}
}

// TestGrandchildren guards C22: what containerd has started lives on after a stop, and
// its hold on containerd's output does not keep Run.
func TestGrandchildren(t *testing.T) {
	m := newMachine(t, "")
	m.script("sleep 600 &\necho $! > " + m.dir + "/shim\ntrap 'exit 0' TERM\nwait\n")
	m.start()
	shim := m.pidOf("shim")
	t.Cleanup(func() { _ = syscall.Kill(shim, syscall.SIGKILL) })
	if err := m.stop(); err != nil {
		t.Errorf("Run = %v", err)
	}
	if !alive(shim) {
		t.Error("the grandchild did not survive the stop")
	}
}
