package daemon

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

// TestPreflightUser: only root can run containerd.
func TestPreflightUser(t *testing.T) {
	m := scriptMachine(t, "")
	m.options.User = 1000
	if err := one(t, m.options, "user"); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "1000") {
		t.Errorf("user 1000: %v, want fs.ErrPermission with the user", err)
	}
}

// TestPreflightConfig guards C02, and the part of C03 that is seen before the start.
func TestPreflightConfig(t *testing.T) {
	m := scriptMachine(t, "")
	m.options.Root, m.options.State = "", ""
	m.options.ConfigFile = m.dir + "/absent.toml"
	if err := one(t, m.options, "config"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a configuration that is not there: %v, want fs.ErrNotExist", err)
	}
	for _, tt := range []struct{ text, want string }{
		{"version = 3\nroot = [\n", "line 2"},
		{"root = \"/x\"\nstate = \"/x\"\n", "must differ"},
		{"imports = [\"none.toml\"]\n", "none.toml"},
	} {
		m.options.ConfigFile = m.write("bad.toml", tt.text, 0o644)
		var bad *ConfigError
		if err := one(t, m.options, "config"); !errors.As(err, &bad) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v, want a ConfigError with %q", tt.text, err, tt.want)
		}
	}
	if _, err := ReadConfig(m.write("bad.toml", "root = [", 0o644)); !errors.As(err, new(*ConfigError)) {
		t.Errorf("ReadConfig = %v, want a ConfigError", err)
	}
}

// TestPreflightMismatch guards C25: the configuration, with what it imports, and the manifest must agree.
func TestPreflightMismatch(t *testing.T) {
	m := scriptMachine(t, "")
	places := func(version, root, state string) string {
		return "version = " + version + "\nroot = '" + root + "'\nstate = '" + state + "'\n"
	}
	root, state, address := m.config.Root, m.config.State, m.config.Address
	for _, tt := range []struct{ name, text, imported, want string }{
		{"address", places("3", root, state) + "[grpc]\naddress = '/else.sock'\n", "", address},
		{"address of version 4", places("4", root, state) + "[plugins.'io.containerd.server.v1.grpc']\naddress = '/else.sock'\n", "", address},
		{"no address", places("3", root, state), "", address},
		{"root", places("3", "/else", state) + "[grpc]\naddress = '" + address + "'\n", "", root},
		{"no root", "version = 3\nstate = '" + state + "'\n[grpc]\naddress = '" + address + "'\n", "", root},
		{"state", places("3", root, "/else") + "[grpc]\naddress = '" + address + "'\n", "", state},
		{"imported root", "imports = ['over*.toml']\n" + places("3", root, state) + "[grpc]\naddress = '" + address + "'\n", "root = '/else'", root},
		{"imported address", "imports = ['over.toml']\n" + places("3", root, state) + "[grpc]\naddress = '/else.sock'\n", "[grpc]\naddress = '" + address + "'\n", ""},
		{"a slash more", places("3", root+"/", state) + "[grpc]\naddress = '" + address + "'\n", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m.write("over.toml", tt.imported, 0o644)
			m.options.ConfigFile = m.write("own.toml", tt.text, 0o644)
			if tt.want == "" {
				if err := preflight(m.options); err != nil {
					t.Errorf("%v, want no finding", err)
				}
				return
			}
			var bad *ConfigError
			if err := one(t, m.options, "config"); !errors.As(err, &bad) || !strings.Contains(err.Error(), "the manifest's is \""+tt.want+"\"") {
				t.Errorf("%v, want a ConfigError with the manifest's %s", err, tt.want)
			}
		})
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

// TestPreflightDirectories guards C24: a directory of the tree that is gone is named, with what makes it.
func TestPreflightDirectories(t *testing.T) {
	for name, dir := range map[string]func(*machine) string{
		"data":   func(m *machine) string { return m.options.Root },
		"state":  func(m *machine) string { return m.options.State },
		"TMPDIR": func(m *machine) string { return m.options.TempDir },
	} {
		t.Run(name, func(t *testing.T) {
			m := scriptMachine(t, "")
			gone := dir(m)
			if err := os.RemoveAll(gone); err != nil {
				t.Fatal(err)
			}
			var found *PreflightError
			err := preflight(m.options)
			var missing *MissingDir
			if !errors.As(err, &found) || len(found.Findings) != 1 || !errors.As(err, &missing) || missing.Path != gone || !strings.Contains(missing.Hint(), "storage place") {
				t.Errorf("no %s: %v, want a MissingDir", gone, err)
			}
		})
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

// TestFindRunning: the tree's own containerd is no fault; one of another root at its address is.
func TestFindRunning(t *testing.T) {
	m := newMachine(t, realContainerd(t))
	if r := FindRunning(t.Context(), m.options); r != nil {
		t.Fatalf("FindRunning = %+v before anything runs", r)
	}
	m.start()
	m.waitReady()
	r := FindRunning(t.Context(), m.options)
	if r == nil || r.PID == 0 || r.Version == "" {
		t.Fatalf("FindRunning = %+v, want the containerd that runs", r)
	}
	for _, f := range Preflight(m.options) {
		if !f.Warning && !r.Holds(f) {
			t.Errorf("found %s: %v of the tree's own containerd", f.Check, f.Err)
		}
	}
	other := newMachine(t, m.options.Binary.Path)
	options := other.options
	options.Address, other.config.Address = m.options.Address, m.options.Address
	data, err := RenderConfig(other.config)
	if err != nil {
		t.Fatal(err)
	}
	options.Config = data
	if r := FindRunning(t.Context(), options); r != nil {
		t.Errorf("FindRunning = %+v, which has another root", r)
	}
	var inUse *InUse
	if err := one(t, options, "socket"); !errors.As(err, &inUse) || !strings.Contains(err.Error(), "(containerd)") {
		t.Errorf("another's socket: %v, want InUse with its name", err)
	}
}

// TestForeignContainerd: one that somebody else runs on the tree, such as a distribution's service, is in the way.
func TestForeignContainerd(t *testing.T) {
	m := newMachine(t, realContainerd(t))
	service := exec.Command("sh", "-c", m.options.Binary.Path+" --config "+m.options.ConfigFile+" 2>/dev/null & echo; wait")
	service.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	if err := service.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = unix.Kill(-service.Process.Pid, unix.SIGKILL)
		_ = service.Wait()
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := waitServing(ctx, m.options.Address); err != nil {
		t.Fatal(err)
	}
	if r := FindRunning(t.Context(), m.options); r != nil {
		t.Errorf("FindRunning = %+v, which another program has started", r)
	}
	if err := one(t, m.options, "socket"); !errors.As(err, new(*InUse)) {
		t.Errorf("a containerd of another program: %v, want InUse", err)
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
