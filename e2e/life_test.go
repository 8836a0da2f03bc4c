package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"seedbed/e2e/systemd"
)

// TestLife brings containerd, under its unit, to what ends badly without a supervisor: it hangs, starts slowly, never
// starts, does not stop, fails each time.
func TestLife(t *testing.T) {
	n := bootNode(t, append(programs(t), ownContainerd(t)))
	defer n.explain()
	n.wantCheck()
	n.wantHangNoticed()
	n.wantSlowStart()
	n.wantStartTimeout()
	n.wantSlowStop()
	n.wantBoundedFailure()
	n.powerOff()
}

// wantCheck wants the look before the leap to say what to do first, that it takes root, and then nothing.
func (n *node) wantCheck() {
	n.t.Helper()
	if r := n.Try("seedbed", "containerd", "check"); r.ExitCode != 78 || !strings.Contains(r.Stderr, "storage place") {
		n.t.Errorf("check before the tree is placed: %v, want exit 78 and the next step", r)
	}
	n.Run("seedbed", "storage", "place")
	nobody := []string{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"}
	if r := n.Try(append(nobody, "seedbed", "containerd", "check")...); r.ExitCode != 77 || !strings.Contains(r.Stdout, "error    user: ") {
		n.t.Errorf("check as nobody: %v, want exit 77 that says why", r)
	}
	// The shell's PATH is not the unit's: what only the shell finds is not there, what the unit finds is.
	n.Run("mkdir", "/run/tools")
	n.script("/run/tools/containerd-shim-runsc-v1", "")
	r := n.Try("env", "PATH=/run/tools", "/usr/local/bin/seedbed", "containerd", "check")
	if !r.OK() || !strings.Contains(r.Stdout, `warning  shim: find shim of runtime "runsc"`) || strings.Contains(r.Stdout, `runtime "runc"`) {
		n.t.Errorf("check with a shell's PATH: %v, want a warning of runsc's shim and none of runc's", r)
	}
}

// wantHangNoticed stops containerd with SIGSTOP: systemd misses the health that seedbed vouches for, and starts both
// anew.
func (n *node) wantHangNoticed() {
	n.t.Helper()
	n.dropIn("WatchdogSec=6s")
	n.Systemctl("start", containerdUnit)
	hung := n.daemons()
	if len(hung) != 1 {
		n.t.Fatalf("found processes %q called containerd: expected one", hung)
	}
	before := n.Property(containerdUnit, "NRestarts")
	n.Run("kill", "-STOP", hung[0])
	n.eventually(60*time.Second, "the watchdog's restart", func() bool {
		return n.Property(containerdUnit, "NRestarts") != before && n.state(containerdUnit) == "active/running"
	})
	if now := n.daemons(); len(now) != 1 || slices.Equal(now, hung) {
		n.t.Errorf("containerd is process %q, was %q when it hung: expected one, and another", now, hung)
	}
	said := strings.Join(systemd.Messages(n.Journal("_PID=1", "UNIT="+containerdUnit)), "\n")
	if !strings.Contains(said, "Watchdog timeout") {
		n.t.Errorf("the service manager does not say that it was the watchdog:\n%s", said)
	}
	n.Systemctl("stop", containerdUnit)
}

// wantSlowStart has containerd take longer than the unit's timeout: the service manager is asked for more, and told what is
// waited for (C15).
func (n *node) wantSlowStart() {
	n.t.Helper()
	n.script("/run/fake", "sleep 5\nexec /containerd/bin/containerd \"$@\"\n")
	n.dropIn("ExecStart=", "ExecStart="+seedbed+" containerd run --containerd /run/fake", "TimeoutStartSec=2s")
	n.Systemctl("start", "--no-block", containerdUnit)
	n.eventually(4*time.Second, "the status", func() bool {
		return strings.HasPrefix(n.Property(containerdUnit, "StatusText"), "waiting for containerd to answer at "+ctrdSocket)
	})
	n.eventually(30*time.Second, "the start", func() bool { return n.state(containerdUnit) == "active/running" })
	if begun, active := n.microseconds(containerdUnit, "InactiveExitTimestampMonotonic"), n.microseconds(containerdUnit, "ActiveEnterTimestampMonotonic"); active-begun < 5e6 {
		n.t.Errorf("it was active after %d µs: expected 5 s", active-begun)
	}
	n.Systemctl("stop", containerdUnit)
}

// wantStartTimeout bounds a start that never comes to its end with --start-timeout: 75, and why.
func (n *node) wantStartTimeout() {
	n.t.Helper()
	n.script("/run/fake", "echo reading for ever\nexec sleep 600\n")
	n.dropIn("ExecStart=", "ExecStart="+seedbed+" containerd run --containerd /run/fake --start-timeout 2s", "Restart=no")
	if r := n.TrySystemctl("start", containerdUnit); r.OK() {
		n.t.Error("the unit started with a containerd that never answers")
	}
	n.wantEnd("75", "within 2s: reading for ever")
}

// wantSlowStop has a containerd that does not heed TERM: seedbed gives it the time of --stop-timeout although the unit's
// is shorter, and then kills it.
func (n *node) wantSlowStop() {
	n.t.Helper()
	n.script("/run/fake", "/containerd/bin/containerd \"$@\" &\ntrap 'echo not yet' TERM\nwhile :; do wait; done\n")
	n.dropIn("ExecStart=", "ExecStart="+seedbed+" containerd run --containerd /run/fake --stop-timeout 4s", "TimeoutStopSec=2s")
	n.Systemctl("start", containerdUnit)
	begun := time.Now()
	n.Systemctl("stop", containerdUnit)
	if took := time.Since(begun); took < 4*time.Second || took > 15*time.Second {
		n.t.Errorf("the stop took %s: expected about 4 s", took)
	}
	n.wantEnd("137", "it did not end in time and was killed")
	n.Run(append([]string{"kill", "-KILL"}, n.daemons()...)...) // what the script had started is no child of seedbed, and is left
}

// wantBoundedFailure has a containerd that always exits with 1: seedbed does not try again by itself, and says why it ended;
// systemd does, at its own pace (C13).
func (n *node) wantBoundedFailure() {
	n.t.Helper()
	n.script("/run/fake", "echo \"start $$\" >>/run/starts\necho it is broken\nexit 1\n")
	n.dropIn("ExecStart=", "ExecStart="+seedbed+" containerd run --containerd /run/fake", "RestartSec=2s")
	begun := time.Now()
	if r := n.TrySystemctl("start", containerdUnit); r.OK() {
		n.t.Error("the unit started with a containerd that exits with 1")
	}
	n.eventually(time.Minute, "the third try", func() bool { return strings.Count(n.readFile("/run/starts"), "start") >= 3 })
	if took := time.Since(begun); took < 4*time.Second {
		n.t.Errorf("there were three starts in %s: expected 2 s between two of them", took)
	}
	n.Systemctl("stop", containerdUnit)
	n.wantEnd("1", "it exited with status 1: it is broken")
	starts, tries := strings.Count(n.readFile("/run/starts"), "start"), n.Property(containerdUnit, "NRestarts")
	if fmt.Sprint(starts-1) != tries {
		n.t.Errorf("containerd was started %d times and the unit restarted %s times: expected one start each", starts, tries)
	}
}

// wantEnd wants the unit's last run to have exited with the code, and seedbed to have said the reason.
func (n *node) wantEnd(code, reason string) {
	n.t.Helper()
	if got := n.Property(containerdUnit, "ExecMainStatus"); got != code {
		n.t.Errorf("containerd run exited with %s: expected %s", got, code)
	}
	said := systemd.Messages(n.Journal("--unit="+containerdUnit, "--identifier=seedbed"))
	if !slices.ContainsFunc(said, func(line string) bool { return strings.Contains(line, reason) }) {
		n.t.Errorf("the journal does not say %q: %q", reason, said)
	}
}

// dropIn overrides settings of the service until the next call, and forgets its failures.
func (n *node) dropIn(settings ...string) {
	n.t.Helper()
	file := n.Path("/etc/systemd/system/" + containerdUnit + ".d/test.conf")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("[Service]\n"+strings.Join(settings, "\n")+"\n"), 0o644); err != nil {
		n.t.Fatal(err)
	}
	n.Systemctl("daemon-reload")
	n.TrySystemctl("reset-failed", containerdUnit) // it may not have failed
}

// script writes a shell script into the machine.
func (n *node) script(path, text string) {
	n.t.Helper()
	if err := os.WriteFile(n.Path(path), []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		n.t.Fatal(err)
	}
}
