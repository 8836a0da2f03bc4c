package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"seedbed/e2e/systemd"
	"seedbed/e2e/tools"
)

const journald = "systemd-journald.service"

// quickRestarts is a drop-in that has no limit of restarts: the rounds below make many.
const quickRestarts = "[Unit]\nStartLimitIntervalSec=0\n[Service]\n"

// bootLogNode returns a node whose containerd runs, without images to import.
func bootLogNode(t *testing.T) *node {
	t.Helper()
	binds := append(programs(t), ownContainerd(t))
	n := &node{t: t, Machine: systemd.Boot(t, systemd.Options{
		Binds: binds, Images: []systemd.Image{dataImage(t)},
		Files: map[string]string{
			"/etc/systemd/system/" + containerdUnit + ".d/quick.conf": quickRestarts + "RestartSec=100ms\n",
			"/etc/systemd/system/" + journald + ".d/quick.conf":       quickRestarts,
			"/etc/systemd/system/" + preseedUnit + ".d/quick.conf":    quickRestarts,
		},
	})}
	n.Run("seedbed", "units", "install")
	n.Systemctl("daemon-reload")
	n.Systemctl("start", containerdUnit)
	return n
}

// lineWriter writes numbered lines into the FIFO as a sandbox does.
type lineWriter struct {
	fifo *os.File
	next int // number of the next line
}

// openWriter opens the machine's FIFO for writing, through the poller: a write that waits for room can be ended.
func openWriter(t *testing.T, n *node, fifo string) *lineWriter {
	t.Helper()
	file, err := os.OpenFile(n.Path(fifo), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return &lineWriter{fifo: file}
}

// write writes so many lines of about the given length, and no error but one of the FIFO's stops it.
func (w *lineWriter) write(lines, length int) error {
	for range lines {
		line := fmt.Sprintf("I0131 15:04:05.000001 7 a.go:1] line %d ", w.next)
		line += strings.Repeat("x", max(0, length-len(line))) + "\n"
		if _, err := w.fifo.WriteString(line); err != nil {
			return fmt.Errorf("write line %d: %w", w.next, err)
		}
		w.next++
	}
	return nil
}

// writeUntil writes some lines each millisecond until the context ends.
func (w *lineWriter) writeUntil(ctx context.Context) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := w.write(10, 60); err != nil {
				return err
			}
		}
	}
}

// writeDuring writes lines while work is done.
func (w *lineWriter) writeDuring(t *testing.T, work func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	written := make(chan error, 1)
	go func() { written <- w.writeUntil(ctx) }()
	started := time.Now()
	work()
	t.Logf("it took %v", time.Since(started).Round(time.Millisecond))
	cancel()
	if err := <-written; err != nil {
		t.Fatal(err)
	}
}

// writeThrough writes lines during so many rounds of the faults.
func (w *lineWriter) writeThrough(t *testing.T, rounds int, faults []func()) {
	t.Helper()
	w.writeDuring(t, func() {
		for round := range rounds {
			faults[round%len(faults)]()
		}
	})
}

// Every line that reached the socket unit's FIFO is in the journal, once, whatever is restarted, stopped or killed
// meanwhile.
func TestLogFaults(t *testing.T) {
	n := bootLogNode(t)
	defer n.explainLogs()
	w := openWriter(t, n, runscFIFO)
	w.writeThrough(t, 50, []func(){
		func() { n.Systemctl("restart", journald) },
		func() { n.again(containerdUnit, func() { n.Systemctl("restart", containerdUnit) }) },
		func() { n.again(containerdUnit, func() { n.Systemctl("stop", containerdUnit) }) },
		func() {
			n.again(containerdUnit, func() { n.Systemctl("kill", "--kill-whom=main", "--signal=KILL", containerdUnit) })
		},
		func() { n.again(containerdUnit, n.killDaemon) },
	})
	n.wantEachOnce("runsc", w.next)
}

// A FIFO that no socket unit holds is held by the service manager for the unit of its pump.
func TestLogUnitFaults(t *testing.T) {
	if reason := systemd.Unable(); reason != "" {
		t.Skipf("no machine boots here: %s", reason)
	}
	const fifo, unit = "/srv/app.fifo", "seedbed-log@srv-app.fifo.service"
	n := &node{t: t, Machine: systemd.Boot(t, systemd.Options{
		Binds: []systemd.Bind{{Host: tools.Seedbed(t), Machine: seedbed}},
		Files: map[string]string{
			"/etc/systemd/system/seedbed-log@.service.d/quick.conf": quickRestarts + "RestartSec=100ms\n",
			"/etc/systemd/system/" + journald + ".d/quick.conf":     quickRestarts,
		},
	})}
	defer n.explainLogs()
	n.Run("seedbed", "units", "install")
	n.Systemctl("daemon-reload")
	n.Run("mkfifo", "-m", "0600", fifo)
	n.Systemctl("start", unit)
	w := openWriter(t, n, fifo)
	w.writeThrough(t, 30, []func(){
		func() { n.Systemctl("restart", journald) },
		func() { n.again(unit, func() { n.Systemctl("restart", unit) }) },
		func() { n.again(unit, func() { n.Systemctl("kill", "--kill-whom=main", "--signal=KILL", unit) }) },
	})
	n.wantEachOnce("app", w.next)
}

// A journald that is killed may lose the entry that it has in its hands: that one has left its socket and is not in its
// file. That is all that is lost.
func TestJournaldKilled(t *testing.T) {
	n := bootLogNode(t)
	defer n.explainLogs()
	w := openWriter(t, n, runscFIFO)
	const kills = 20
	w.writeDuring(t, func() {
		for range kills {
			before := n.Property(journald, "ExecMainPID")
			n.Systemctl("kill", "--kill-whom=main", "--signal=KILL", journald)
			n.eventually(10*time.Second, "another journald", func() bool {
				return n.Property(journald, "ExecMainPID") != before && n.state(journald) == "active/running"
			})
			time.Sleep(50 * time.Millisecond) // it has work in its hands again
		}
	})
	missing, twice := n.countLines("runsc", w.next)
	if missing > kills || twice > 0 {
		t.Errorf("of %d lines %d are missing after %d kills, and %d there more than once", w.next, missing, kills, twice)
	}
	t.Logf("%d of %d lines are missing", missing, w.next)
}

// again has the unit run with another main process after a fault. The socket unit, or systemd's restart, may have begun
// to start it.
func (n *node) again(unit string, fault func()) {
	n.t.Helper()
	const main = "ExecMainPID"
	before := n.Property(unit, main)
	fault()
	n.eventually(30*time.Second, unit+" to run again", func() bool {
		return n.TrySystemctl("start", unit).OK() && n.Property(unit, main) != before && n.state(unit) == "active/running"
	})
}

// killDaemon kills containerd, which is there once.
func (n *node) killDaemon() {
	n.t.Helper()
	ids := n.daemons()
	if len(ids) != 1 {
		n.t.Fatalf("containerd runs as %q, want one process", ids)
	}
	n.Run("kill", "-KILL", ids[0])
}

// explainLogs is explain without the lines that were written.
func (n *node) explainLogs() {
	if !n.t.Failed() {
		return
	}
	for _, e := range n.Journal("--priority=info", "--lines=80", "_PID=1", "+", "_SYSTEMD_UNIT="+journald, "+", "SYSLOG_IDENTIFIER=seedbed", "+", "SYSLOG_IDENTIFIER=containerd") {
		n.t.Logf("%s[%s]: %s", e["SYSLOG_IDENTIFIER"], e["_PID"], e["MESSAGE"])
	}
}

// log returns the messages that the journal has from the identifier.
func (n *node) log(identifier string, args ...string) string {
	n.t.Helper()
	n.Run("journalctl", "--sync")
	return n.Run(append([]string{"journalctl", "--quiet", "--output=cat", "--identifier=" + identifier}, args...)...)
}

// waitForLine waits until the journal has the line.
func (n *node) waitForLine(identifier string, number int) {
	n.t.Helper()
	n.eventually(30*time.Second, "the last line", func() bool {
		return strings.Contains(n.log(identifier, "--lines=10"), fmt.Sprintf("line %d ", number))
	})
}

// wantEachOnce wants the lines 0 to count-1 in the journal, once each.
func (n *node) wantEachOnce(identifier string, count int) {
	n.t.Helper()
	if missing, twice := n.countLines(identifier, count); missing > 0 || twice > 0 {
		n.t.Errorf("of %d lines %d are missing and %d there more than once", count, missing, twice)
	}
	n.t.Logf("%d lines", count)
}

// countLines returns how many of the lines 0 to count-1 are not in the journal, and how many more than once.
func (n *node) countLines(identifier string, count int) (missing, twice int) {
	n.t.Helper()
	n.waitForLine(identifier, count-1)
	seen := make([]int, count)
	for line := range strings.Lines(n.log(identifier)) {
		var number int
		if _, err := fmt.Sscanf(line, "line %d", &number); err != nil || number >= count {
			n.t.Errorf("the journal has %q", line)
			continue
		}
		seen[number]++
	}
	for number, times := range seen {
		switch {
		case times == 0:
			missing++
		case times > 1:
			twice++
		}
		if times != 1 && missing+twice < 20 {
			n.t.Logf("line %d is there %d times", number, times)
		}
	}
	return missing, twice
}

// A journald that takes nothing holds up no sandbox: what does not fit is dropped, the oldest first, one entry tells
// how much, and every line is there or counted.
func TestStalledJournald(t *testing.T) {
	n := bootLogNode(t)
	defer n.explainLogs()
	w := openWriter(t, n, runscFIFO)
	n.Systemctl("kill", "--kill-whom=main", "--signal=STOP", journald)
	started := time.Now()
	err := w.write(100_000, 100) // 10 MB, more than FIFO and backlog hold
	took := time.Since(started)
	n.eventually(10*time.Second, "dropped records in the status", func() bool {
		return strings.Contains(n.Property(containerdUnit, "StatusText"), " dropped")
	})
	n.Systemctl("kill", "--kill-whom=main", "--signal=CONT", journald)
	if err != nil {
		t.Fatal(err)
	}
	if took > 20*time.Second {
		t.Errorf("a writer of 10 MB was held up for %v", took)
	}
	t.Logf("10 MB took %v", took.Round(time.Millisecond))

	n.waitForLine("runsc", w.next-1)
	there := strings.Count(n.log("runsc"), "line ")
	notices := n.Journal("--identifier=runsc", "--grep=^dropped")
	if len(notices) != 1 {
		t.Fatalf("found %d entries of dropped records, want one: %q", len(notices), systemd.Messages(notices))
	}
	dropped, err := strconv.Atoi(notices[0]["RECORDS_DROPPED"])
	lost, errBytes := strconv.Atoi(notices[0]["BYTES_DROPPED"])
	if err := errors.Join(err, errBytes); err != nil || there+dropped != w.next || lost < 100*dropped {
		t.Errorf("%d lines written: found %d, and %d of %d bytes told of: %v", w.next, there, dropped, lost, err)
	}
}

// What journalctl shows of a record is what the reference says, for runsc's records and for containerd's.
func TestLogFields(t *testing.T) {
	n := bootLogNode(t)
	defer n.explainLogs()
	w := openWriter(t, n, runscFIFO)
	for _, text := range []string{
		"W0131 15:04:05.000001       7 boot.go:12] low\n{\n  \"a\": 1\n}\n",
		`{"msg":"x.go:3] hello","level":"debug","time":"2026-01-31T15:04:05.5Z"}`,
		"panic: boom\n\ngoroutine 1 [running]:\nmain.main()\n\t/x/y.go:5\n",
	} {
		if _, err := w.fifo.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	n.eventually(5*time.Second, "three records", func() bool { return len(n.Journal("--identifier=runsc")) == 3 })
	entries := n.Journal("--identifier=runsc")
	for i, want := range []systemd.Entry{
		{"MESSAGE": "low\n{\n  \"a\": 1\n}", "PRIORITY": "4", "SYSLOG_PID": "7", "CODE_FILE": "boot.go", "CODE_LINE": "12", "_SYSTEMD_UNIT": containerdUnit},
		{"MESSAGE": "hello", "PRIORITY": "7", "CODE_FILE": "x.go", "CODE_LINE": "3", "SYSLOG_TIMESTAMP": "2026-01-31T15:04:05.5Z"},
		{"MESSAGE": "panic: boom\n\ngoroutine 1 [running]:\nmain.main()\n\t/x/y.go:5", "PRIORITY": "2"},
	} {
		for field, value := range want {
			if got := entries[i][field]; got != value {
				t.Errorf("entry %d: %s is %q, want %q", i, field, got, value)
			}
		}
	}
	page, err := os.ReadFile("../docs/reference/logs.md")
	if err != nil {
		t.Fatal(err)
	}
	known := 0
	for _, e := range n.Journal("--identifier=containerd") {
		for field := range e {
			if strings.HasPrefix(field, "_") || strings.HasPrefix(field, "SYSLOG_FACILITY") {
				continue // the journal's own
			}
			known++
			if !strings.Contains(string(page), "`"+field+"`") {
				t.Errorf("the reference does not name %s: %.200s", field, e["MESSAGE"])
			}
		}
		if e["SYSLOG_TIMESTAMP"] == "" && e["PRIORITY"] == "" {
			t.Errorf("containerd's entry %q has neither time nor priority", e["MESSAGE"])
		}
	}
	if known == 0 {
		t.Error("the journal has no field of containerd's")
	}
}
