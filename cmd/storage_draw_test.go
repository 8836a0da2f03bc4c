package cmd

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"seedbed/storage"
)

// TestDocsDrawing compares drawings with testdata/show; `make docs` writes them.
func TestDocsDrawing(t *testing.T) {
	tests := map[string]drawing{"manifest": drawn(), "colours": drawn(), "usage": drawn()}
	for _, name := range storage.BuiltinNames() {
		layout, err := storage.Builtin(name)
		if err != nil {
			t.Fatal(err)
		}
		tests[name] = drawing{nodes: layout.Nodes, mounts: layout.Mounts}
	}
	for name, d := range tests {
		d.colour = name == "colours"
		if name != "usage" {
			d.usage = nil
		}
		var out bytes.Buffer
		if err := d.write(&out); err != nil {
			t.Fatal(err)
		}
		comparePage(t, filepath.Join("testdata", "show", name+".golden"), out.Bytes())
	}
}

// drawn is a placed tree with all that a drawing can show.
func drawn() drawing {
	return drawing{
		nodes: []storage.Node{
			{ID: "root", Path: "/", Kind: storage.KindDir, Mode: 0o755, State: storage.StatePresent, Host: true},
			{ID: "data", Path: "/data", Kind: storage.KindDir, Mode: 0o755, State: storage.StatePresent, Mount: "data"},
			{ID: "data.etcd", Path: "/data/etcd", Kind: storage.KindDir, Mode: 0o700, UID: 1234, GID: 77, User: "etcd", State: storage.StatePresent},
			{ID: "data.logs", Path: "/data/undeclared/logs", Kind: storage.KindFIFO, Mode: 0o640, GID: 4321, State: storage.StatePresent},
			{ID: "data.link", Path: "/data/link", Kind: storage.KindSymlink, Mode: 0o777, Target: "/a\x1b[31m", State: storage.StatePresent},
			{ID: "data.sock", Path: "/data/ünder.sock", Kind: storage.KindSocket, Mode: 0o660, State: storage.StateReserved},
			{ID: "etc.machine_id", Path: "/etc/machine-id", Kind: storage.KindSymlink, Mode: 0o777, Target: "/x", State: storage.StateAbsent},
		},
		mounts: []storage.Mount{{
			ID: "data", Path: "/data", Policy: storage.PolicyRequire, FSType: "xfs", Options: []string{"noexec"}, Size: "20g",
			Encryption: storage.EncryptionDMCrypt, State: storage.MountMounted,
		}},
		drift: []storage.Drift{
			{ID: "data.etcd", Path: "/data/etcd", Kind: storage.KindDir, Want: "mode 0700", Got: "mode 0755"},
			{ID: "data.etcd", Path: "/data/etcd", Kind: storage.KindDir, Want: "owner 1234:77", Got: "owner 0:0"},
			{ID: "data.logs", Path: "/data/undeclared/logs", Kind: storage.KindFIFO, Want: "fifo", Got: "file"},
		},
		usage: map[string]int64{"data": 5<<30 + 1, "data.etcd": 1536 << 10, "data.logs": 0, "data.link": 1023},
	}
}

// TestColours: a terminal takes colours, unless it is dumb or they are not wanted.
func TestColours(t *testing.T) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminal: %v", err)
	}
	defer master.Close()
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, c := range []struct {
		name          string
		out           *os.File
		noColor, term string
		want          bool
	}{
		{"a terminal", terminal, "", "xterm", true},
		{"not wanted", terminal, "1", "xterm", false},
		{"a dumb terminal", terminal, "", "dumb", false},
		{"a file", file, "", "xterm", false},
	} {
		t.Setenv("NO_COLOR", c.noColor)
		t.Setenv("TERM", c.term)
		g := &globals{streams: streams{Out: &pipeWriter{w: c.out}}}
		if got := g.colours(); got != c.want {
			t.Errorf("%s: colours: %v: expected %v", c.name, got, c.want)
		}
	}
}
