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
		if err := help(os.Args[1], os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// help serves the FIFO until TERM and appends the records to the file out.
func help(fifo, spool, out string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	f, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = Serve(ctx, fifo, nil, Options{Spool: spool}, lines{f})
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

// startHelper starts a process that serves the FIFO.
func startHelper(t *testing.T, fifo, spool, out string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := exec.Command(self, fifo, spool, out)
	p.Env = append(os.Environ(), helperEnv+"=1")
	p.Stderr = os.Stderr
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Process.Kill(); _ = p.Wait() })
	return p
}
