package systemd_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"seedbed/e2e/systemd"
)

// A unit that says READY=1 itself, so that its start means that notification works in the machine.
const notifyUnit = `[Service]
Type=notify
NotifyAccess=all
ExecStart=/bin/sh -c 'echo starting; systemd-notify --ready --status="all is well"; exec sleep 600'
`

func TestBoot(t *testing.T) {
	host := filepath.Join(t.TempDir(), "shared")
	if err := os.WriteFile(host, []byte("from the host\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	m := systemd.Boot(t, systemd.Options{
		Binds: []systemd.Bind{{Host: host, Machine: "/srv/shared"}},
		Files: map[string]string{"/etc/systemd/system/probe.service": notifyUnit},
	})

	if got := m.Run("cat", "/srv/shared"); got != "from the host\n" {
		t.Errorf("bound file holds %q", got)
	}
	if got := strings.TrimSpace(m.Run("cat", "/proc/1/comm")); got != "systemd" {
		t.Errorf("process 1 is %q, want systemd", got)
	}
	if r := m.Try("sh", "-c", "echo out; echo err >&2; exit 7"); r.ExitCode != 7 || r.Stdout != "out\n" || r.Stderr != "err\n" {
		t.Errorf("command that exits 7 with output: %v", r)
	}
	if r := m.Try("touch", "/srv/shared"); r.OK() {
		t.Error("a bind that is not writable was written to")
	}

	m.Systemctl("start", "probe.service")
	if got := m.Property("probe.service", "StatusText"); got != "all is well" {
		t.Errorf("status of the notifying unit is %q", got)
	}
	if got := systemd.Messages(m.Journal("--unit=probe.service")); !slices.Contains(got, "starting") {
		t.Errorf("journal of the notifying unit: %q", got)
	}
	if got := m.Console(); !strings.Contains(got, "basic.target") {
		t.Errorf("the console does not tell of the boot: %q", got)
	}
	if got := m.Systemctl("list-units", "--failed", "--plain", "--no-legend"); got != "" {
		t.Errorf("failed units after the boot:\n%s", got)
	}
	m.PowerOff()
}

// A limit that is set on a unit must bind it: the controllers are the machine's to use.
func TestCgroups(t *testing.T) {
	m := systemd.Boot(t, systemd.Options{})
	got := m.Run("systemd-run", "--quiet", "--pipe", "--wait", "--property=TasksMax=7", "--property=Delegate=yes",
		"sh", "-c", `cat /sys/fs/cgroup/pids$(sed -n 's/^[0-9]*:pids://p' /proc/self/cgroup)/pids.max 2>/dev/null ||
			cat /sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)/pids.max`)
	if got != "7\n" {
		t.Errorf("pids.max of a unit with TasksMax=7 is %q", got)
	}
}

// Nothing of a machine stays on the host, also when it was killed while services ran.
func TestCloseLeavesNothing(t *testing.T) {
	before := traces(t)
	m := systemd.Boot(t, systemd.Options{Files: map[string]string{"/etc/systemd/system/probe.service": notifyUnit}})
	m.Systemctl("start", "probe.service")
	if slices.Equal(before, traces(t)) {
		t.Fatal("a running machine has no trace: the test sees nothing")
	}
	m.Close()
	if after := traces(t); !slices.Equal(before, after) {
		t.Errorf("traces before %q, after %q", before, after)
	}
}

// traces lists this process's machines' cgroups and the mounts below the temporary directory.
func traces(t *testing.T) []string {
	t.Helper()
	cgroups, err := filepath.Glob(fmt.Sprintf("/sys/fs/cgroup/*/seedbed-e2e-%d-*", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, "TestCloseLeavesNothing") {
			cgroups = append(cgroups, line)
		}
	}
	return cgroups
}
