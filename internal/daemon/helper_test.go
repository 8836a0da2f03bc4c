package daemon

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"seedbed/e2e/tools"
	"seedbed/logpump"
)

// realContainerd returns the path of a containerd of the version in go.mod.
func realContainerd(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: containerd mounts and changes owners")
	}
	return tools.Build(t).Containerd
}

// log is a sink that keeps what it gets.
type log struct {
	mu      sync.Mutex
	records []logpump.Record
}

func (l *log) Send(records []logpump.Record) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range records {
		r.Message = strings.Clone(r.Message)
		fields := r.Fields
		r.Fields = nil
		for _, f := range fields {
			r.Fields = append(r.Fields, logpump.Field{Name: strings.Clone(f.Name), Value: strings.Clone(f.Value)})
		}
		l.records = append(l.records, r)
	}
	return len(records), nil
}

func (l *log) Close() error { return nil }

func (l *log) messages() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for _, r := range l.records {
		out = append(out, r.Message)
	}
	return out
}

// find returns the first record whose message contains text.
func (l *log) find(text string) (logpump.Record, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.records {
		if strings.Contains(r.Message, text) {
			return r, true
		}
	}
	return logpump.Record{}, false
}

// machine is a placed tree, as far as this package needs one, and a Run on it.
type machine struct {
	t       *testing.T
	dir     string
	config  ConfigOptions
	options Options
	log     *log
	runsc   *log

	mu     sync.Mutex
	events []string // ready, stopping, and the statuses
	ready  chan struct{}
	cancel context.CancelFunc
	done   chan error
}

// newMachine places the tree for the containerd at path program.
func newMachine(t *testing.T, program string) *machine {
	t.Helper()
	dir := shortTempDir(t)
	m := &machine{t: t, dir: dir, log: new(log), runsc: new(log), ready: make(chan struct{})}
	m.config = ConfigOptions{
		Root: dir + "/data", State: dir + "/state", Address: dir + "/state/c.sock",
		CNIConf: dir + "/state/cni", CNIBin: dir + "/bin",
		RunscConfig: dir + "/runsc.toml", RunscRoot: dir + "/state/runsc", RunscLogsFIFO: dir + "/state/runsc.fifo",
	}
	for _, d := range []string{"data", "state", "state/tmp", "bin"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	m.options = Options{
		Binary: Binary{Path: program}, ConfigFile: dir + "/config.toml", Address: m.config.Address,
		Root: m.config.Root, State: m.config.State,
		RunscFIFO: m.config.RunscLogsFIFO, BinDir: dir + "/bin", TempDir: dir + "/state/tmp",
		Environ: os.Environ(), StopTimeout: 20 * time.Second, Log: m.log, RunscLog: m.runsc,
		Ready:    func() { m.event("ready"); close(m.ready) },
		Stopping: func() { m.event("stopping") },
		Status:   m.event,
		Extend:   func(time.Duration) { m.event("extend") },
	}
	data, err := RenderConfig(m.config)
	if err != nil {
		t.Fatal(err)
	}
	m.write("config.toml", string(data), 0o644)
	return m
}

// shortTempDir returns a directory whose path leaves room for a socket's.
func shortTempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (m *machine) event(s string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = append(m.events, s)
}

func (m *machine) count(event string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, e := range m.events {
		if e == event {
			n++
		}
	}
	return n
}

func (m *machine) write(name, text string, mode os.FileMode) string {
	m.t.Helper()
	path := filepath.Join(m.dir, name)
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		m.t.Fatal(err)
	}
	return path
}

// script makes a shell script the containerd of the machine.
func (m *machine) script(text string) {
	m.t.Helper()
	m.options.Binary.Path = m.write("fake-containerd", "#!/bin/sh\n"+text, 0o755)
}

// start starts Run; it is stopped at the end of the test at the latest.
func (m *machine) start() {
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel, m.done = cancel, make(chan error, 1)
	go func() { m.done <- Run(ctx, m.options) }()
	m.t.Cleanup(func() {
		cancel()
		if m.done != nil {
			<-m.done
		}
	})
}

// waitReady waits for the call of Ready.
func (m *machine) waitReady() {
	m.t.Helper()
	select {
	case <-m.ready:
	case err := <-m.done:
		m.done = nil
		m.t.Fatalf("Run ended before it was ready: %v\nlog: %q", err, m.log.messages())
	case <-time.After(60 * time.Second):
		m.t.Fatalf("not ready after 60 s; log: %q", m.log.messages())
	}
}

// wait waits for the end of Run and returns what it returned.
func (m *machine) wait() error {
	m.t.Helper()
	select {
	case err := <-m.done:
		m.done = nil
		return err
	case <-time.After(60 * time.Second):
		m.t.Fatalf("Run did not end in 60 s; log: %q", m.log.messages())
		return nil
	}
}

// stop ends the context and returns what Run returned.
func (m *machine) stop() error {
	m.t.Helper()
	m.cancel()
	return m.wait()
}

func isAbsent(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, os.ErrNotExist)
}

// eventually waits until f holds.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if f() {
			return
		}
	}
	t.Fatalf("%s: not within 20 s", what)
}
