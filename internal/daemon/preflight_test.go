package daemon

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"seedbed/logpump"
)

// findings returns what Preflight says about check.
func findings(o Options, check string) []Finding {
	var found []Finding
	for _, f := range Preflight(o) {
		if f.Check == check {
			found = append(found, f)
		}
	}
	return found
}

// one returns the only finding about check, and the other fatal ones must be none.
func one(t *testing.T, o Options, check string) error {
	t.Helper()
	for _, f := range Preflight(o) {
		if f.Check != check && !f.Warning {
			t.Errorf("Preflight finds %s: %v", f.Check, f.Err)
		}
	}
	found := findings(o, check)
	if len(found) != 1 {
		t.Fatalf("Preflight finds %v about %s, want one finding", found, check)
	}
	var advice interface{ Hint() string }
	if !found[0].Warning && errors.As(found[0].Err, &advice) && advice.Hint() == "" {
		t.Errorf("%v has no hint", found[0].Err)
	}
	return found[0].Err
}

func scriptMachine(t *testing.T, script string) *machine {
	t.Helper()
	m := newMachine(t, "")
	m.script(script)
	return m
}

func TestPreflightFindsNothing(t *testing.T) {
	m := scriptMachine(t, "")
	if err := preflight(m.options); err != nil {
		t.Error(err)
	}
	if !isAbsent(m.options.RunscFIFO) {
		t.Error("Preflight made the FIFO, it shall change nothing")
	}
}

// TestPreflightConfig guards C02, and the part of C03 that is seen before the start.
func TestPreflightConfig(t *testing.T) {
	m := scriptMachine(t, "")
	m.options.ConfigFile = m.dir + "/absent.toml"
	if err := one(t, m.options, "config"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a configuration that is not there: %v, want fs.ErrNotExist", err)
	}
	for _, tt := range []struct{ text, want string }{
		{"version = 3\nroot = [\n", "line 2"},
		{"root = \"/x\"\nstate = \"/x\"\n", "must differ"},
	} {
		m.options.ConfigFile = m.write("bad.toml", tt.text, 0o644)
		var bad *ConfigError
		if err := one(t, m.options, "config"); !errors.As(err, &bad) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v, want a ConfigError with %q", tt.text, err, tt.want)
		}
		if _, err := ReadConfig(m.options.ConfigFile); !errors.As(err, &bad) {
			t.Errorf("ReadConfig(%q) = %v, want a ConfigError", tt.text, err)
		}
	}
}

// TestPreflightAddress guards C25: the configuration and the manifest must agree.
func TestPreflightAddress(t *testing.T) {
	m := scriptMachine(t, "")
	for _, text := range []string{
		"version = 3\n[grpc]\naddress = \"/elsewhere.sock\"\n",
		"version = 4\n[plugins.'io.containerd.server.v1.grpc']\naddress = \"/elsewhere.sock\"\n",
		"version = 3\n",
	} {
		m.options.ConfigFile = m.write("other.toml", text, 0o644)
		if err := one(t, m.options, "address"); !strings.Contains(err.Error(), m.options.Address) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestPreflightSocket guards C06, C07 and C08.
func TestPreflightSocket(t *testing.T) {
	m := scriptMachine(t, "")
	address := m.options.Address

	listener, err := net.Listen("unix", address)
	if err != nil {
		t.Fatal(err)
	}
	var inUse *InUse
	if err := one(t, m.options, "socket"); !errors.As(err, &inUse) || inUse.PID != os.Getpid() {
		t.Errorf("a live socket: %v, want InUse with process %d", err, os.Getpid())
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	listener.Close()
	if found := findings(m.options, "socket"); found != nil {
		t.Errorf("a stale socket: %v, containerd replaces it", found)
	}
	os.Remove(address)
	if err := os.WriteFile(address, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if found := findings(m.options, "socket"); found != nil {
		t.Errorf("an empty file: %v, containerd replaces it", found)
	}
	os.Remove(address)
	if err := os.Mkdir(address, 0o700); err != nil {
		t.Fatal(err)
	}
	var bad *SocketError
	if err := one(t, m.options, "socket"); !errors.As(err, &bad) || !strings.Contains(bad.Hint(), "bind mount") {
		t.Errorf("a directory: %v, want a SocketError that names the bind mount", err)
	}

	m = scriptMachine(t, "")
	long := filepath.Join(m.dir, "state", strings.Repeat("x", 108-len(m.dir)-len("/state/")))
	m.options.Address, m.config.Address = long, long
	data, err := RenderConfig(m.config)
	if err != nil {
		t.Fatal(err)
	}
	m.write("config.toml", string(data), 0o644)
	if err := one(t, m.options, "socket"); !errors.As(err, &bad) || !strings.Contains(err.Error(), "108 bytes") {
		t.Errorf("108 bytes: %v, want a SocketError with the length", err)
	}
}

func TestPreflightDirectories(t *testing.T) {
	m := scriptMachine(t, "")
	os.Remove(m.options.TempDir)
	var missing *MissingDir
	if err := one(t, m.options, "directory"); !errors.As(err, &missing) || !strings.Contains(missing.Hint(), "storage place") {
		t.Errorf("no TMPDIR: %v, want a MissingDir", err)
	}
}

// TestPreflightFIFO guards C18 on the way to a start.
func TestPreflightFIFO(t *testing.T) {
	m := scriptMachine(t, "")
	m.write("state/runsc.fifo", "precious", 0o600)
	var not *logpump.NotFIFO
	if err := one(t, m.options, "fifo"); !errors.As(err, &not) {
		t.Errorf("a regular file: %v, want NotFIFO", err)
	}
	m.start()
	if err := m.wait(); !errors.As(err, &not) {
		t.Errorf("Run = %v, want NotFIFO", err)
	}
}

// TestPreflightShims guards C20.
func TestPreflightShims(t *testing.T) {
	m := scriptMachine(t, "")
	m.options.Environ = []string{"PATH=/nowhere"}
	found := findings(m.options, "shim")
	if len(found) != 2 {
		t.Fatalf("found %v, want both runtimes without a shim", found)
	}
	for i, want := range []string{"containerd-shim-runc-v2", "containerd-shim-runsc-v1"} {
		var missing *MissingShim
		if !found[i].Warning || !errors.As(found[i].Err, &missing) || missing.Program != want || missing.PATH != m.options.BinDir+":/nowhere" {
			t.Errorf("finding %d is %+v, want a warning about %s", i, found[i], want)
		}
	}
	m.write("bin/containerd-shim-runc-v2", "#!/bin/sh\n", 0o755)
	m.write("containerd-shim-runsc-v1", "#!/bin/sh\n", 0o755) // beside containerd
	if found := findings(m.options, "shim"); found != nil {
		t.Errorf("found %v with both shims there", found)
	}
}

func TestPreflightDatabase(t *testing.T) {
	m := scriptMachine(t, "")
	path := filepath.Join(m.config.Root, database)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if found := findings(m.options, "database"); found != nil {
		t.Errorf("a database that nobody has locked: %v", found)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	var inUse *InUse
	if err := one(t, m.options, "database"); !errors.As(err, &inUse) || inUse.PID != os.Getpid() {
		t.Errorf("a locked database: %v, want InUse with process %d", err, os.Getpid())
	}
}

func TestOverlay(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]bool{"nodev\toverlay\n": true, "nodev\ttmpfs\n\text4\n": false} {
		path := filepath.Join(dir, "filesystems")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := checkOverlay(path); (err == nil) != want {
			t.Errorf("%q: %v", text, err)
		}
	}
}
