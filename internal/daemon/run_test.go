package daemon

import (
	"io/fs"
	"os"
	"syscall"
	"testing"

	"seedbed/logpump"
)

// TestRunAndStop guards C01, C09, C16 and C17 with a real containerd: it becomes ready
// once, the FIFO is made and read without anybody waiting, a stop is clean, and what
// was in the FIFO is not lost.
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
	if err := os.WriteFile(m.options.RunscFIFO, []byte("I0131 15:04:05.000000       7 boot.go:12] hello\nlast words"), 0); err != nil {
		t.Fatal(err)
	}
	if err := m.stop(); err != nil {
		t.Errorf("Run = %v after a stop that was asked for, want nil", err)
	}
	if m.count("ready") != 1 || m.count("stopping") != 1 {
		t.Errorf("ready and stopping were called %d and %d times, want once each", m.count("ready"), m.count("stopping"))
	}
	if !isAbsent(m.options.Address) {
		t.Errorf("the socket is still there after a stop")
	}
	if got := m.runsc.messages(); len(got) != 2 || got[0] != "hello" || got[1] != "last words" {
		t.Errorf("FIFO gave %q, want both lines", got)
	}
	r, ok := m.log.find("containerd successfully booted")
	if !ok || r.Priority != logpump.Info || r.Time.IsZero() {
		t.Errorf("containerd's log has no parsed record of its start: %+v", r)
	}
}
