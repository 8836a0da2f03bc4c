package logpump

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
)

// helperEnv makes this test program a process that pumps; see startHelper.
const helperEnv = "LOGPUMP_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helperEnv) != "" {
		if err := help(os.Getenv(helperEnv), os.Args[1], os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// The sinks that a helper may have.
const (
	toFile    = "file"
	toJournal = "journal"
)

// help serves the FIFO until TERM and appends the records to the file out, or sends them to the journald that
// listens there.
func help(to, fifo, spool, out string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	sink, err := newJournal(out, "helper")
	if to == toFile {
		var f *os.File
		f, err = os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		sink = lines{f}
	}
	if err != nil {
		return err
	}
	_, err = Serve(ctx, fifo, nil, Options{Spool: spool}, sink)
	return err
}

// lines is a sink that writes each record with one write, so that it is there or not.
type lines struct{ f *os.File }

func (l lines) Send(records []Record) (int, error) {
	for i, r := range records {
		text := r.Message
		for _, f := range r.Fields {
			text += " " + f.Name
		}
		if _, err := l.f.WriteString(r.Message + text[len(r.Message):] + "\n"); err != nil {
			return i, err
		}
	}
	return len(records), nil
}

func (l lines) Close() error { return l.f.Close() }

// startHelper starts a process that serves the FIFO into a file.
func startHelper(t *testing.T, fifo, spool, out string) *exec.Cmd {
	t.Helper()
	return startHelperTo(t, toFile, fifo, spool, out)
}

func startHelperTo(t *testing.T, to, fifo, spool, out string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := exec.Command(self, fifo, spool, out)
	p.Env = append(os.Environ(), helperEnv+"="+to)
	p.Stderr = os.Stderr
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Process.Kill(); _ = p.Wait() })
	return p
}
