package storage

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadManifestTrust(t *testing.T) {
	cases := []struct {
		name   string
		change func(t *testing.T, name string)
		want   string
	}{
		{"writable by others", func(t *testing.T, name string) { must(t, os.Chmod(name, 0o666)) }, "mode 0666"},
		{"in a directory that others can write", func(t *testing.T, name string) { must(t, os.Chmod(filepath.Dir(name), 0o777)) }, "mode 0777"},
		{"a link", func(t *testing.T, name string) {
			must(t, os.Rename(name, name+".real"))
			must(t, os.Symlink(name+".real", name))
		}, "symbolic link"},
		{"two names", func(t *testing.T, name string) { must(t, os.Link(name, name+".too")) }, "2 hard links"},
		{"a directory", func(t *testing.T, name string) {
			must(t, os.Remove(name))
			must(t, os.Mkdir(name, 0o755))
		}, "expected a regular file"},
		{"of another user", func(t *testing.T, name string) {
			needRoot(t)
			must(t, os.Chown(name, 1234, 0))
		}, "owned by user 1234"},
		{"of another root", func(t *testing.T, name string) {
			data, err := os.ReadFile(name)
			must(t, err)
			must(t, os.WriteFile(name, bytes.Replace(data, []byte(`"root":"`), []byte(`"root":"/other`), 1), 0o644))
		}, "not the one it lies in"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			place(t, layout(t, "dir /a 0755"), root)
			name := DefaultManifest(root)
			if _, err := ReadManifest(name); err != nil {
				t.Fatal(err)
			}
			c.change(t, name)
			_, err := ReadManifest(name)
			var hint interface{ Hint() string }
			if !errors.Is(err, ErrUntrusted) || !strings.Contains(err.Error(), c.want) || !errors.As(err, &hint) {
				t.Errorf("ReadManifest: %v: expected ErrUntrusted with …%s…", err, c.want)
			}
		})
	}
}

func TestPlaceRepairsAnUntrustedManifest(t *testing.T) {
	root := t.TempDir()
	l := layout(t, "dir /a 0755")
	place(t, l, root)
	must(t, os.Chmod(DefaultManifest(root), 0o666))
	if r := place(t, l, root); !r.Written {
		t.Error("the manifest was not written again")
	}
	must(t, os.WriteFile(DefaultManifest(root), []byte("{"), 0o644))
	r := place(t, l, root)
	if !r.Written || len(r.Plan.Warnings) != 1 {
		t.Errorf("a damaged manifest: written %v, warnings %q", r.Written, r.Plan.Warnings)
	}
	if _, err := ReadManifest(DefaultManifest(root)); err != nil {
		t.Error(err)
	}
}

// TestLayoutMayNotTakeTheManifestsPlace: a node where the manifest goes, or one that makes its directory something
// that readers do not trust, is refused before anything is written.
func TestLayoutMayNotTakeTheManifestsPlace(t *testing.T) {
	for _, line := range []string{
		"dir /run/seedbed/manifest.json 0755", "fifo /run/seedbed/manifest.json 0600", "file /run/seedbed/manifest.json 0644",
		"dir /run/seedbed/manifest.json/x 0755", "fifo /run/seedbed 0600", "file /run 0644", "dir /run/seedbed 0777",
	} {
		t.Run(line, func(t *testing.T) {
			root := t.TempDir()
			before := snapshot(t, root)
			_, err := Place(t.Context(), layout(t, "dir /a 0755", line), PlaceOptions{Root: root})
			var invalid *ValidationError
			if !errors.As(err, &invalid) || !strings.Contains(err.Error(), "manifest") {
				t.Errorf("Place: %v: expected a ValidationError about the manifest", err)
			}
			untouched(t, root, before)
		})
	}
}

// TestManifestInAnUntrustedDirectory: a manifest that no reader would believe is not written.
func TestManifestInAnUntrustedDirectory(t *testing.T) {
	root := t.TempDir()
	must(t, os.MkdirAll(root+"/run/seedbed", 0o755))
	must(t, os.Chmod(root+"/run/seedbed", 0o777))
	before := snapshot(t, root)
	_, err := Place(t.Context(), layout(t, "dir /a 0755"), PlaceOptions{Root: root})
	if !errors.Is(err, ErrUntrusted) || !strings.Contains(err.Error(), root+"/run/seedbed") {
		t.Errorf("Place: %v: expected ErrUntrusted", err)
	}
	untouched(t, root, before)
	must(t, os.Chmod(root+"/run/seedbed", 0o755))
	place(t, layout(t, "dir /a 0755"), root)
}

func TestManifestOfAnotherBoot(t *testing.T) {
	m := &Manifest{Root: "/", BootID: "0123456789"}
	if err := m.belongs("/run/seedbed/manifest.json"); !errors.Is(err, ErrUntrusted) || !strings.Contains(err.Error(), "another boot") {
		t.Errorf("belongs: %v: expected ErrUntrusted", err)
	}
}

func TestNoManifest(t *testing.T) {
	for _, name := range []string{t.TempDir() + "/m.json", t.TempDir() + "/no/such/m.json"} {
		if _, err := ReadManifest(name); !errors.Is(err, ErrNoManifest) {
			t.Errorf("ReadManifest: %v: expected ErrNoManifest", err)
		}
	}
	name := t.TempDir() + "/m.json"
	must(t, os.WriteFile(name, []byte("<html>"), 0o644))
	if _, err := ReadManifest(name); !errors.As(err, new(*BadDocument)) {
		t.Errorf("ReadManifest: %v: expected BadDocument", err)
	}
}

func TestManifestElsewhere(t *testing.T) {
	root, name := t.TempDir(), filepath.Join(t.TempDir(), "my.json")
	l := layout(t, "dir /a 0755")
	for _, want := range []bool{true, false} {
		r, err := Place(t.Context(), l, PlaceOptions{Root: root, Manifest: name})
		if err != nil || r.Written != want {
			t.Fatalf("Place: %v, written %v: expected %v", err, r.Written, want)
		}
	}
	if _, err := os.Stat(root + "/run"); err == nil {
		t.Error("run was made although the manifest is elsewhere")
	}
	if _, err := ReadManifest(name); err != nil {
		t.Error(err)
	}
	inside := root + "/etc/seedbed/m.json"
	if _, err := Place(t.Context(), l, PlaceOptions{Root: root, Manifest: inside}); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadManifest(inside); err != nil {
		t.Error(err)
	}
	_, err := Place(t.Context(), l, PlaceOptions{Root: root, Manifest: t.TempDir() + "/no/dir/m.json"})
	if err == nil {
		t.Error("a manifest in a directory that is absent")
	}
}

func TestManifestFields(t *testing.T) {
	root := t.TempDir()
	place(t, builtin(t, "node"), root)
	data, err := os.ReadFile(DefaultManifest(root))
	must(t, err)
	order := []string{"schema", "layout", "declaration", "root", "boot_id", "generation", "nodes", "mounts"}
	last := -1
	for _, field := range order {
		at := bytes.Index(data, []byte(`"`+field+`":`))
		if at <= last {
			t.Errorf("%s stands at %d, after %d: expected the order %v", field, at, last, order)
		}
		last = at
	}
	var m struct {
		Nodes []map[string]any `json:"nodes"`
	}
	must(t, json.Unmarshal(data, &m))
	for _, n := range m.Nodes {
		if n["id"] != "ephemeral.containerd.client_socket" {
			continue
		}
		want := map[string]any{
			"id": n["id"], "path": "/ephemeral/containerd/client.sock", "kind": "socket", "mode": "0660",
			"uid": 0.0, "gid": 0.0, "mount": "ephemeral", "creator": "runtime", "state": "reserved",
		}
		for k, v := range want {
			if n[k] != v && (k != "uid" && k != "gid" || os.Geteuid() == 0) {
				t.Errorf("%s is %v: expected %v", k, n[k], v)
			}
		}
	}
}

func TestWriteFile(t *testing.T) {
	withUmask(t, 0o077)
	name := filepath.Join(t.TempDir(), "f")
	for _, content := range []string{"one", "two"} {
		must(t, WriteFile(name, []byte(content), 0o640))
		if data, err := os.ReadFile(name); string(data) != content || err != nil {
			t.Errorf("content %q, %v: expected %q", data, err, content)
		}
		if got := modeOf(t, name) & 0o7777; got != 0o640 {
			t.Errorf("mode %o: expected 640", got)
		}
	}
	if entries, err := os.ReadDir(filepath.Dir(name)); err != nil || len(entries) != 1 {
		t.Errorf("left: %v, %v", entries, err)
	}
	if err := WriteFile(filepath.Join(t.TempDir(), "no", "f"), nil, 0o600); err == nil {
		t.Error("a file in a directory that is absent")
	}
}
