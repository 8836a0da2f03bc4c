package e2e_test

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"seedbed/e2e/gvisor"
	"seedbed/e2e/systemd"
)

const (
	runscConfig = "/run/seedbed/runsc.toml" // as seedbed renders it

	// What the test puts between runsc and the FIFO, to have what runsc wrote twice.
	teeFIFO   = "/run/tee.fifo"
	teeCopy   = "/run/tee.log"
	teeConfig = "/run/tee.toml"
)

// TestGVisor runs containers in real sandboxes of gVisor: what runsc says is in the journal with its fields while the
// sandbox runs, and through restarts of the unit no line is lost, doubled or out of its order.
func TestGVisor(t *testing.T) {
	built := gvisor.Build(t)
	n := bootNode(t, append(programs(t), ownContainerd(t),
		systemd.Bind{Host: built.Runsc, Machine: "/containerd/bin/runsc"},
		systemd.Bind{Host: built.Shim, Machine: "/containerd/bin/containerd-shim-runsc-v1"}))
	defer n.explain()
	n.Systemctl("start", target)

	n.sandbox("box", runscConfig)
	if got := n.ctr("tasks", "exec", "--exec-id", "dmesg", "box", "/usr/bin/dmesg"); !strings.Contains(got, "Starting gVisor") {
		t.Errorf("the container's kernel says %q, which is not gVisor's voice", got)
	}
	n.wantRunscFields()
	n.wantContainerdFields("box")
	n.ctr("tasks", "delete", "--force", "box")

	n.startTee()
	n.sandbox("counted", teeConfig)
	before := n.task("counted")
	n.restartWhileRunscTalks("counted")
	if after := n.task("counted"); after != before || !strings.HasSuffix(after, " RUNNING") {
		t.Errorf("the sandbox was %q before the restarts and is %q after them", before, after)
	}
	n.ctr("tasks", "delete", "--force", "counted")
	n.wantEveryLine()
	n.powerOff()
}

// sandbox starts a container that stays, with gVisor's configuration in that file.
func (n *node) sandbox(name, config string) {
	n.t.Helper()
	run := []string{
		"run", "--detach", "--runtime", "io.containerd.runsc.v1", "--runtime-config-path", config,
		"--annotation", "io.kubernetes.cri.container-type=sandbox", // without it gVisor's shim waits for a sandbox to join
	}
	for dst, src := range map[string]string{"/usr": "/usr", "/lib": "/usr/lib", "/lib64": "/usr/lib64"} { // the machine's programs
		run = append(run, "--mount", "type=bind,options=rbind:ro,src="+src+",dst="+dst)
	}
	n.ctr(append(run, ociImage, name, "/usr/bin/sleep", "600")...)
}

// wantRunscFields wants runsc's records to have the fields that docs/reference promises, from the sandbox's own process
// too.
func (n *node) wantRunscFields() {
	n.t.Helper()
	n.eventually(5*time.Second, "a record of the sandbox", func() bool {
		return slices.ContainsFunc(n.Journal("--identifier=runsc"), func(e systemd.Entry) bool {
			return e["SYSLOG_PID"] == "1" && strings.Contains(e["MESSAGE"], "EXEC: ")
		})
	})
	entries := n.Journal("--identifier=runsc")
	for _, e := range entries {
		at, err := time.Parse(time.RFC3339Nano, e["SYSLOG_TIMESTAMP"])
		if err != nil || time.Since(at).Abs() > 10*time.Minute {
			n.t.Errorf("time %q of %q: %v", e["SYSLOG_TIMESTAMP"], e["MESSAGE"], err)
		}
		_, pid := strconv.Atoi(e["SYSLOG_PID"])
		_, line := strconv.Atoi(e["CODE_LINE"])
		if pid != nil || line != nil || !strings.HasSuffix(e["CODE_FILE"], ".go") || e["PRIORITY"] == "" || e["_SYSTEMD_UNIT"] != containerdUnit {
			n.t.Errorf("a record of runsc lacks a field: %v", e)
		}
	}
	if len(entries) < 50 {
		n.t.Errorf("found %d records of a sandbox's start: expected some hundred", len(entries))
	}
}

// wantContainerdFields wants containerd's record of the container's shim, with the fields that docs/reference promises.
func (n *node) wantContainerdFields(container string) {
	n.t.Helper()
	found := n.Journal("--identifier=containerd", "CONTAINERD_NAMESPACE=k8s.io", "CONTAINERD_PROTOCOL=ttrpc")
	if len(found) == 0 || !strings.HasPrefix(found[0]["MESSAGE"], "connecting to shim "+container) || found[0]["PRIORITY"] != "6" || found[0]["SYSLOG_TIMESTAMP"] == "" {
		n.t.Errorf("containerd's record of the shim is %v", found)
	}
}

// startTee has everything that is written to teeFIFO copied to teeCopy and passed on to the FIFO.
func (n *node) startTee() {
	n.t.Helper()
	config := strings.ReplaceAll(n.readFile(runscConfig), runscFIFO, teeFIFO)
	if err := os.WriteFile(n.Path(teeConfig), []byte(config), 0o644); err != nil {
		n.t.Fatal(err)
	}
	n.Run("mkfifo", teeFIFO)
	// The shell's descriptor 3 keeps the FIFO from ending between two writers.
	n.Run("systemd-run", "--quiet", "--unit=tee", "sh", "-c", "exec 3<>"+teeFIFO+"; exec tee "+teeCopy+" <"+teeFIFO+" >"+runscFIFO)
}

// restartWhileRunscTalks restarts the unit three times, with runsc at work in the sandbox all the while.
func (n *node) restartWhileRunscTalks(container string) {
	n.t.Helper()
	const root = "/ephemeral/containerd/runsc/k8s.io"
	exec := "/containerd/bin/runsc --root=" + root + " --debug-log=" + teeFIFO + " --debug-log-format=text exec " + container + " /usr/bin/true"
	n.Run("systemd-run", "--quiet", "--unit=talk", "sh", "-c", "until test -e /run/enough; do "+exec+" || exit 1; done")
	for range 3 {
		lines := len(n.copied())
		n.Systemctl("restart", containerdUnit)
		if now := len(n.copied()); now <= lines {
			n.t.Errorf("runsc said nothing during a restart: found %d lines before and %d after it", lines, now)
		}
	}
	n.Run("touch", "/run/enough")
	n.eventually(30*time.Second, "the end of runsc's work", func() bool { return n.state("talk.service") == "inactive/dead" })
	if got := n.Property("talk.service", "Result"); got != "success" {
		n.t.Errorf("runsc exec ended with %s", got)
	}
}

// copied returns the lines that runsc has written, but for empty ones, which make no record.
func (n *node) copied() []string {
	n.t.Helper()
	return fullLines(n.readFile(teeCopy))
}

func fullLines(text string) []string {
	return slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool { return line == "" })
}

// wantEveryLine wants the lines of the journal to be those that runsc wrote, in their order.
func (n *node) wantEveryLine() {
	n.t.Helper()
	var want, got []string
	n.eventually(20*time.Second, "the last line in the journal", func() bool {
		want, got = n.copied(), glogLines(n.Journal("--identifier=runsc"))
		return len(got) > 0 && got[len(got)-1] == headOfGlog(want[len(want)-1])
	})
	for i := range want {
		want[i] = headOfGlog(want[i])
	}
	n.t.Logf("runsc wrote %d lines", len(want))
	first := slices.Index(got, want[0])
	if first < 0 {
		n.t.Fatalf("the first line is not in the journal: %q", want[0])
	}
	got = got[first:]
	for i := range min(len(want), len(got)) {
		if got[i] != want[i] {
			n.t.Fatalf("line %d in the journal is\n%q, runsc wrote\n%q", i, got[i], want[i])
		}
	}
	if len(got) != len(want) {
		n.t.Errorf("found %d lines in the journal: expected %d", len(got), len(want))
	}
}

var glogHead = regexp.MustCompile(`^([IWEFD])(\d{4} \d\d:\d\d:\d\d\.\d{6}) +(\d+) ([^ \]]+)\] `)

// headOfGlog puts the head of a glog line into a form that glogLines can give back.
func headOfGlog(line string) string { return glogHead.ReplaceAllString(line, "$1$2 $3 $4] ") }

// glogLines returns the lines that entries were made of.
func glogLines(entries []systemd.Entry) []string {
	levels := map[string]string{"2": "F", "3": "E", "4": "W", "6": "I", "7": "D"}
	var all []string
	for _, e := range entries {
		message := e["MESSAGE"]
		if e["CODE_FILE"] != "" {
			at, _ := time.Parse(time.RFC3339Nano, e["SYSLOG_TIMESTAMP"])
			message = levels[e["PRIORITY"]] + at.Local().Format("0102 15:04:05.000000") + " " +
				e["SYSLOG_PID"] + " " + e["CODE_FILE"] + ":" + e["CODE_LINE"] + "] " + message
		}
		all = append(all, fullLines(message)...)
	}
	return all
}
