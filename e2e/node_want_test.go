package e2e_test

import (
	"cmp"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"seedbed/e2e/systemd"
)

// wantActive wants all units to be up. A process that ends after READY=1 ends a little later than its start does.
func (n *node) wantActive() {
	n.t.Helper()
	n.eventually(10*time.Second, preseedUnit+" to exit", func() bool { return n.state(preseedUnit) != "active/running" })
	for unit, want := range map[string]string{
		storageUnit: "active/exited", socketUnit: "active/running", containerdUnit: "active/running",
		preseedUnit: "active/exited", target: "active/active",
	} {
		if got := n.state(unit); got != want {
			n.t.Errorf("%s is %s, want %s", unit, got, want)
		}
	}
}

func (n *node) state(unit string) string {
	n.t.Helper()
	both := n.Systemctl("show", "--value", "--property=ActiveState,SubState", unit) // one call: one moment
	return strings.ReplaceAll(both, "\n", "/")
}

// wantOrder wants each unit to have begun when the one before it was active (C26).
func (n *node) wantOrder() {
	n.t.Helper()
	chain := []string{storageUnit, socketUnit, containerdUnit, preseedUnit, "kubelet.service"}
	for i, unit := range chain[1:] {
		before := chain[i]
		active, begun := n.microseconds(before, "ActiveEnterTimestampMonotonic"), n.microseconds(unit, "InactiveExitTimestampMonotonic")
		if active == 0 || begun < active {
			n.t.Errorf("%s began at %d µs, %s was active at %d µs", unit, begun, before, active)
		}
	}
}

func (n *node) microseconds(unit, property string) int64 {
	n.t.Helper()
	text := n.Property(unit, property)
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		n.t.Fatalf("%s of %s is %q: %v", property, unit, text, err)
	}
	return value
}

var notification = regexp.MustCompile(`Got notification message from PID (\d+)(.*)`)

// wantOneReadyEach wants one READY=1 of each service, from its main process, and no message from any other (C01).
func (n *node) wantOneReadyEach() {
	n.t.Helper()
	for _, unit := range []string{storageUnit, containerdUnit, preseedUnit} {
		main := n.Property(unit, "ExecMainPID")
		ready := 0
		for _, message := range systemd.Messages(n.Journal("_PID=1", "UNIT="+unit)) {
			found := notification.FindStringSubmatch(message)
			if found == nil {
				continue
			}
			if found[1] != main {
				n.t.Errorf("%s: process %s, which is not the main process %s, sent%s", unit, found[1], main, found[2])
			}
			ready += strings.Count(found[2], "READY=1")
		}
		if ready != 1 {
			n.t.Errorf("%s said READY=1 %d times, want once", unit, ready)
		}
	}
}

func (n *node) wantManifest() {
	n.t.Helper()
	var placed struct {
		Schema, Root string
		Nodes        []struct{ ID, State string }
	}
	if err := json.Unmarshal([]byte(n.readFile(manifest)), &placed); err != nil {
		n.t.Fatalf("read manifest: %v", err)
	}
	if placed.Schema != "seedbed.storage/v1" || placed.Root != "/" || len(placed.Nodes) == 0 {
		n.t.Errorf("manifest has schema %q, root %q and %d nodes", placed.Schema, placed.Root, len(placed.Nodes))
	}
}

// wantMounts wants data to be what the machine has mounted, and ephemeral to be made: one mount each, with the options of
// the layout.
func (n *node) wantMounts() {
	n.t.Helper()
	for path, want := range map[string]string{"/data": "xfs", "/ephemeral": "tmpfs"} {
		if got := n.Run("findmnt", "--noheadings", "--output=FSTYPE", "--mountpoint="+path); strings.TrimSpace(got) != want {
			n.t.Errorf("at %s is mounted %q, want %s alone", path, got, want)
		}
	}
	if got := n.Run("findmnt", "--noheadings", "--output=OPTIONS", "/ephemeral"); !strings.HasPrefix(got, "rw,nosuid,nodev,") {
		n.t.Errorf("/ephemeral has options %s", got)
	}
}

func (n *node) readFile(path string) string {
	n.t.Helper()
	data, err := os.ReadFile(n.Path(path))
	if err != nil {
		n.t.Fatal(err)
	}
	return string(data)
}

func (n *node) ctr(args ...string) string {
	n.t.Helper()
	return n.Run(append([]string{"ctr", "--address", n.address(), "--namespace", "k8s.io"}, args...)...)
}

func (n *node) wantPinned(image string) {
	n.t.Helper()
	list := n.ctr("images", "list", "name=="+image)
	if !strings.Contains(list, image+" ") || !strings.Contains(list, "io.cri-containerd.pinned=pinned") {
		n.t.Errorf("image %s is not there, or not pinned:\n%s", image, list)
	}
}

// wantHello runs a container of the image with runc.
func (n *node) wantHello(image string) {
	n.t.Helper()
	if got, want := n.ctr("run", "--rm", image, "hello"), "hello from "+image+"\n"; got != want {
		n.t.Errorf("a container of %s printed %q, want %q", image, got, want)
	}
}

// wantLinesInJournal writes lines into runsc's FIFO, as a sandbox would.
func (n *node) wantLinesInJournal(lines ...string) {
	n.t.Helper()
	n.Run("sh", "-c", "printf '%s\\n' "+strings.Join(lines, " ")+" >"+runscFIFO)
	n.eventually(5*time.Second, "lines in the journal", func() bool {
		found := systemd.Messages(n.Journal("--identifier=runsc"))
		return !slices.ContainsFunc(lines, func(line string) bool { return !slices.Contains(found, line) })
	})
}

// wantSurvivor starts a container and wants it to run on while containerd is restarted, and to be the next containerd's
// own (C22).
func (n *node) wantSurvivor() {
	n.t.Helper()
	run := []string{"run", "--detach"}
	for _, dir := range []string{"", "/lib", "/lib64"} { // the image has no program that stays; the machine has
		run = append(run, "--mount", "type=bind,options=rbind:ro,src=/usr"+dir+",dst="+cmp.Or(dir, "/usr"))
	}
	n.ctr(append(run, ociImage, "survivor", "/usr/bin/sleep", "600")...)
	before := n.task("survivor")
	n.Systemctl("restart", containerdUnit)
	if after := n.task("survivor"); after != before || !strings.HasSuffix(after, " RUNNING") {
		n.t.Errorf("the container was %q before containerd's restart and is %q after it", before, after)
	}
	n.ctr("tasks", "delete", "--force", "survivor")
	n.ctr("containers", "delete", "survivor")
}

// task returns a container's process id and state.
func (n *node) task(container string) string {
	n.t.Helper()
	for line := range strings.Lines(n.ctr("tasks", "list")) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == container {
			return fields[1] + " " + fields[2]
		}
	}
	return "not there"
}

// eventually fails the test when condition does not come true in time.
func (n *node) eventually(limit time.Duration, what string, condition func() bool) {
	n.t.Helper()
	for deadline := time.Now().Add(limit); !condition(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			n.t.Fatalf("wait for %s: nothing after %s", what, limit)
		}
	}
}

// stop stops the target and wants nothing of it to be left but the tree.
func (n *node) stop() {
	n.t.Helper()
	n.Systemctl("stop", target)
	for _, unit := range []string{preseedUnit, containerdUnit, socketUnit, storageUnit} {
		n.eventually(time.Minute, unit+" to stop", func() bool { return n.state(unit) == "inactive/dead" })
	}
	if got := n.Property(containerdUnit, "ExecMainStatus"); got != "0" {
		n.t.Errorf("containerd run exited with %s after a stop that was asked for", got)
	}
	if _, err := os.Lstat(n.Path(n.address())); err == nil {
		n.t.Error("the socket is still there after the stop")
	}
	if left := n.daemons(); len(left) != 0 {
		n.t.Errorf("processes %q are left after the stop", left)
	}
}

// kill ends seedbed with no chance to clean up: its containerd dies with it, and the next one starts over the socket
// that was left (C06, C23).
func (n *node) kill() {
	n.t.Helper()
	before := n.daemons()
	n.Systemctl("kill", "--kill-whom=main", "--signal=KILL", containerdUnit)
	n.eventually(30*time.Second, "the restart", func() bool {
		return n.Property(containerdUnit, "NRestarts") == "1" && n.state(containerdUnit) == "active/running"
	})
	after := n.daemons()
	if len(after) != 1 || slices.Equal(before, after) {
		n.t.Errorf("containerd is process %q, was %q before its parent was killed: want one, and another", after, before)
	}
}

// daemons returns the ids of the machine's processes that run under the name containerd.
func (n *node) daemons() []string {
	n.t.Helper()
	names, err := filepath.Glob(n.Path("/proc/[0-9]*/comm"))
	if err != nil {
		n.t.Fatal(err)
	}
	var ids []string
	for _, file := range names {
		name, err := os.ReadFile(file) // an error: the process has ended meanwhile
		if err == nil && strings.TrimSpace(string(name)) == "containerd" {
			ids = append(ids, filepath.Base(filepath.Dir(file)))
		}
	}
	return ids
}

// wantImported wants a report of these images, each with the status.
func (n *node) wantImported(report, status string, images ...string) {
	n.t.Helper()
	var r struct {
		Bundles []struct {
			Images []struct{ Name, Status string }
		}
	}
	if err := json.Unmarshal([]byte(report), &r); err != nil {
		n.t.Fatalf("read report: %v\n%s", err, report)
	}
	got := map[string]string{}
	for _, b := range r.Bundles {
		for _, i := range b.Images {
			got[i.Name] = i.Status
		}
	}
	want := map[string]string{}
	for _, image := range images {
		want[image] = status
	}
	if !maps.Equal(got, want) {
		n.t.Errorf("images %v, want %v", got, want)
	}
}

// wantUnitsStatus wants `units status` to say of each unit what systemd says.
func (n *node) wantUnitsStatus() {
	n.t.Helper()
	var report struct {
		Units []struct{ Name, File, Active, Sub, Enabled, Status string }
	}
	if err := json.Unmarshal([]byte(n.Run("seedbed", "units", "status", "--output", "json")), &report); err != nil {
		n.t.Fatalf("read the units' status: %v", err)
	}
	if len(report.Units) != 5 { // the template has no instance
		n.t.Errorf("%d units in the status, want 5: %v", len(report.Units), report.Units)
	}
	for _, u := range report.Units {
		if got, want := u.Active+"/"+u.Sub, n.state(u.Name); got != want || u.File != "shipped" {
			n.t.Errorf("%s is %s and %s, want %s and shipped", u.Name, got, u.File, want)
		}
		if want := n.Property(u.Name, "UnitFileState"); u.Enabled != want {
			n.t.Errorf("%s is %s, want %s", u.Name, u.Enabled, want)
		}
		if strings.HasSuffix(u.Name, ".service") && u.Status != n.Property(u.Name, "StatusText") {
			n.t.Errorf("%s says %q", u.Name, u.Status)
		}
	}
}
