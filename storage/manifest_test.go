package storage

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
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
		{"below a directory of another user", func(t *testing.T, name string) {
			needRoot(t)
			must(t, os.Chown(filepath.Dir(filepath.Dir(name)), 1234, 0))
		}, `/run": manifest is not to be trusted: it is owned by user 1234: expected root`},
		{"in a root of another user", func(t *testing.T, name string) {
			needRoot(t)
			must(t, os.Chown(strings.TrimSuffix(name, manifestInRoot), 1234, 0))
		}, "owned by user 1234"},
		{"in a root that others can write", func(t *testing.T, name string) {
			must(t, os.Chmod(strings.TrimSuffix(name, manifestInRoot), 0o777))
		}, "mode 0777"},
		{"behind a link", func(t *testing.T, name string) {
			run := filepath.Dir(filepath.Dir(name))
			must(t, os.Rename(run, run+".real"))
			must(t, os.Symlink("run.real", run))
		}, `/run": manifest is not to be trusted: it is a symbolic link: expected a directory`},
		{"a FIFO", func(t *testing.T, name string) {
			must(t, os.Remove(name))
			must(t, unix.Mkfifo(name, 0o644))
		}, "it is fifo: expected a regular file"},
		{"of another declaration", func(t *testing.T, name string) {
			data, err := os.ReadFile(name)
			must(t, err)
			must(t, os.WriteFile(name, bytes.Replace(data, []byte(`"layout":"test"`), []byte(`"layout":"node"`), 1), 0o644))
		}, "that of the built-in layout node is sha256:"},
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

// Wherever the root is, it is what lies in it that counts.
func TestATrustedRootBelowAnUntrustedDirectory(t *testing.T) {
	needRoot(t)
	home := userDir(t)
	for _, mode := range []uint32{0o1777, 0o777} {
		must(t, unix.Chmod(home, mode))
		root := filepath.Join(home, "root")
		place(t, layout(t, "dir /a 0755"), root)
		if _, err := ReadManifest(DefaultManifest(root)); err != nil {
			t.Errorf("below mode %o: %v", mode, err)
		}
	}
	root := filepath.Join(home, "sticky")
	must(t, os.Mkdir(root, 0o755))
	must(t, unix.Chmod(root, 0o1777))
	place(t, layout(t, "dir /a 0755"), root)
	if _, err := ReadManifest(DefaultManifest(root)); err != nil {
		t.Errorf("in a sticky root: %v", err)
	}
}

func TestManifestOfAUsersOwn(t *testing.T) {
	home := userDir(t)
	root := filepath.Join(home, "root")
	must(t, asUser(t, func() error {
		if _, err := Place(t.Context(), layout(t, "dir /a 0755"), PlaceOptions{Root: root}); err != nil {
			return err
		}
		_, err := ReadManifest(DefaultManifest(root))
		return err
	}))
	if _, err := ReadManifest(DefaultManifest(root)); !errors.Is(err, ErrUntrusted) {
		t.Errorf("ReadManifest as root of a user's root: %v: expected ErrUntrusted", err)
	}
	roots := t.TempDir()
	must(t, os.Chmod(filepath.Dir(roots), 0o755))
	must(t, os.Chmod(roots, 0o755))
	place(t, layout(t, "dir /a 0755"), roots)
	must(t, asUser(t, func() error {
		_, err := ReadManifest(DefaultManifest(roots))
		return err
	}))
}

func TestCheckNodes(t *testing.T) {
	cases := []struct {
		name   string
		change func(t *testing.T, root string)
		want   string // "" where it may be used
	}{
		{"as placed", func(*testing.T, string) {}, ""},
		{"tighter", func(t *testing.T, root string) { must(t, os.Chmod(root+"/a/d", 0o500)) }, ""},
		{"looser", func(t *testing.T, root string) { must(t, os.Chmod(root+"/a/d", 0o751)) }, "mode 0751: expected 0750 or tighter"},
		{"looser, and not used", func(t *testing.T, root string) { must(t, os.Chmod(root+"/b", 0o777)) }, ""},
		{"gone", func(t *testing.T, root string) { must(t, os.Remove(root+"/a/d")) }, ""},
		{"another kind", func(t *testing.T, root string) {
			must(t, os.Remove(root+"/a/d"))
			write(t, root+"/a/d", "")
		}, "it is a file: expected a dir"},
		{"a link", func(t *testing.T, root string) {
			must(t, os.Remove(root+"/a/d"))
			must(t, os.Symlink("/b", root+"/a/d"))
		}, "it is a symlink: expected a dir"},
		{"another owner", func(t *testing.T, root string) {
			needRoot(t)
			must(t, os.Chown(root+"/a/d", 1234, 0))
		}, "owned by user 1234: expected user 0"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			m := place(t, layout(t, "dir /a 0755", "dir /a/d 0750", "dir /b 0755"), root).Manifest
			c.change(t, root)
			err := m.CheckNodes("a.d", "not_in_the_manifest")
			if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, ErrUntrusted) || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("CheckNodes: %v: expected %q", err, c.want)
			}
		})
	}
}

func TestCheckNodesMissesALostMount(t *testing.T) {
	root := privateRoot(t)
	l := withMount(t, Mount{Policy: PolicyMake, FSType: "tmpfs"}, "dir /m/a 0700")
	r, err := Place(t.Context(), l, apply(root))
	must(t, err)
	must(t, r.Manifest.CheckNodes("m.a"))
	must(t, unix.Unmount(root+"/m", 0))
	must(t, os.Mkdir(root+"/m/a", 0o700))
	if err := r.Manifest.CheckNodes("m.a"); !errors.Is(err, ErrUntrusted) || !strings.Contains(err.Error(), "no mount point") {
		t.Errorf("CheckNodes: %v: expected that the mount is lost", err)
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
	whole, err := os.ReadFile(DefaultManifest(root))
	must(t, err)
	for _, damaged := range []string{"{", string(whole[:len(whole)-3]), string(whole) + "x"} {
		must(t, os.WriteFile(DefaultManifest(root), []byte(damaged), 0o644))
		r := place(t, l, root)
		if !r.Written || len(r.Plan.Warnings) != 1 {
			t.Errorf("a damaged manifest: written %v, warnings %q", r.Written, r.Plan.Warnings)
		}
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

// TestWhatReadersWillNotBelieveIsRefused: a tree whose manifest no reader would believe is not placed, and what its
// reader would say is said at once.
func TestWhatReadersWillNotBelieveIsRefused(t *testing.T) {
	needRoot(t)
	const alice = 1111
	elsewhere := func(dir string) string { return filepath.Join(dir, "m.json") }
	cases := []struct {
		name     string
		change   func(t *testing.T, root string)
		lines    []string
		manifest func(root string) string
		want     string // "" where it is believed
	}{
		{"the manifest's directory can be written by others", func(t *testing.T, root string) {
			must(t, os.MkdirAll(root+"/run/seedbed", 0o755))
			must(t, os.Chmod(root+"/run/seedbed", 0o777))
		}, nil, DefaultManifest, `/run/seedbed": unsafe path: it has mode 0777`},
		{"the one above it can", func(t *testing.T, root string) {
			must(t, os.Mkdir(root+"/run", 0o755))
			must(t, os.Chmod(root+"/run", 0o775))
		}, nil, DefaultManifest, `/run": unsafe path: it has mode 0775`},
		{"it can, and will not", func(t *testing.T, root string) {
			must(t, os.Mkdir(root+"/run", 0o755))
			must(t, os.Chmod(root+"/run", 0o777))
		}, []string{"dir /run 0755"}, DefaultManifest, ""},
		{"it will", func(*testing.T, string) {}, []string{"dir /run 0777"}, DefaultManifest, `/run": unsafe path: it has mode 0777`},
		{"the root can", func(t *testing.T, root string) { must(t, os.Chmod(root, 0o777)) }, nil, DefaultManifest, "it has mode 0777"},
		{"the root can, and is sticky", func(t *testing.T, root string) { must(t, unix.Chmod(root, 0o1777)) }, nil, DefaultManifest, ""},
		{"a user's /run", func(t *testing.T, root string) {
			must(t, os.Mkdir(root+"/run", 0o755))
			must(t, os.Chown(root+"/run", alice, 0))
		}, nil, DefaultManifest, `/run": unsafe path: it is owned by user 1111: expected root`},
		{"a user's root, the manifest elsewhere", func(t *testing.T, root string) {
			must(t, os.Chown(root, alice, 0))
		}, nil, func(string) string { return elsewhere(t.TempDir()) }, "it is owned by user 1111: expected root"},
		{"a user's directory elsewhere", func(*testing.T, string) {}, nil, func(string) string {
			dir := t.TempDir()
			must(t, os.Chown(dir, alice, 0))
			return elsewhere(dir)
		}, "it is owned by user 1111: expected root"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			c.change(t, root)
			before, o := snapshot(t, root), PlaceOptions{Root: root, Manifest: c.manifest(root)}
			_, err := Place(t.Context(), layout(t, append(c.lines, "dir /a 0755")...), o)
			if c.want == "" {
				must(t, err)
				_, err = ReadManifest(o.Manifest)
				must(t, err)
				return
			}
			if !errors.As(err, new(*UnsafePath)) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Place: %v: expected an unsafe path with …%s…", err, c.want)
			}
			untouched(t, root, before)
		})
	}
}

// TestATreeHasOneOwner: over what a user placed root places nothing; given to root it is taken over whole.
func TestATreeHasOneOwner(t *testing.T) {
	root := filepath.Join(userDir(t), "root")
	l := builtin(t, "node")
	must(t, asUser(t, func() error {
		_, err := Place(t.Context(), l, PlaceOptions{Root: root})
		return err
	}))
	before := snapshot(t, root)
	if _, err := Place(t.Context(), l, PlaceOptions{Root: root}); !errors.As(err, new(*UnsafePath)) {
		t.Fatalf("Place by root into a user's tree: %v: expected that it is refused", err)
	}
	untouched(t, root, before)
	for _, line := range before {
		name, _, _ := strings.Cut(line, " ")
		must(t, os.Lchown(name, 0, 0))
	}
	place(t, l, root)
	for _, line := range snapshot(t, root) {
		if !strings.Contains(line, " 0:0 ") {
			t.Errorf("of another owner: %s", line)
		}
	}
	if _, err := ReadManifest(DefaultManifest(root)); err != nil {
		t.Error(err)
	}
}

// TestRootAndManifestBelongTogether: the manifest of one root says nothing about another.
func TestRootAndManifestBelongTogether(t *testing.T) {
	a, b, aside := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "m.json")
	l := layout(t, "dir /a 0755")
	place(t, l, a)
	if _, err := Place(t.Context(), l, PlaceOptions{Root: a, Manifest: aside}); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(a, link))
	for _, root := range []string{a, a + "/", link} {
		if _, err := ReadManifestOf(DefaultManifest(a), root); err != nil {
			t.Errorf("ReadManifestOf %s: %v", root, err)
		}
	}
	if r, err := Place(t.Context(), l, PlaceOptions{Root: link, Manifest: DefaultManifest(a)}); err != nil || r.Plan.Changed() != 0 {
		t.Errorf("Place into the same root by another name: %v", err)
	}
	before := snapshot(t, a)
	for _, manifest := range []string{DefaultManifest(a), aside} {
		_, read := ReadManifestOf(manifest, b)
		_, placed := Place(t.Context(), l, PlaceOptions{Root: b, Manifest: manifest})
		for _, err := range []error{read, placed} {
			if !errors.Is(err, ErrUntrusted) || !strings.Contains(err.Error(), `"`+a) || !strings.Contains(err.Error(), `"`+b) {
				t.Errorf("%s for another root: %v: expected ErrUntrusted with both roots", manifest, err)
			}
		}
	}
	untouched(t, a, before)
	if left, err := os.ReadDir(b); err != nil || len(left) > 0 {
		t.Errorf("in the other root: %v, %v", left, err)
	}
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
