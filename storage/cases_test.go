package storage

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestS01S02AnotherKindIsAConflict(t *testing.T) {
	makers := map[Kind]func(t *testing.T, name string){
		KindFile: func(t *testing.T, name string) { write(t, name, "keep me") },
		KindDir:  func(t *testing.T, name string) { write(t, filepath.Join(name, "sub", "file"), "keep me") },
		KindFIFO: func(t *testing.T, name string) { must(t, unix.Mkfifo(name, 0o600)) },
		KindSymlink: func(t *testing.T, name string) {
			must(t, os.Symlink("/nowhere/../else", name))
		},
		KindSocket: func(t *testing.T, name string) {
			l, err := net.Listen("unix", name)
			must(t, err)
			l.(*net.UnixListener).SetUnlinkOnClose(false)
			must(t, l.Close())
		},
	}
	for want := range makers {
		for got, makeIt := range makers {
			if got == want || want == KindDir && got == KindSymlink {
				continue // a directory may be reached through a link: S11
			}
			t.Run(string(want)+" wanted, "+string(got)+" found", func(t *testing.T) {
				root := t.TempDir()
				makeIt(t, root+"/x")
				before := snapshot(t, root)
				l := layout(t, "dir /a 0755", "dir /z 0755", string(want)+" /x 0600 "+target(want))
				r, err := Place(t.Context(), l, PlaceOptions{Root: root})
				var c *Conflict
				if !errors.As(err, &c) || c.Path != root+"/x" || !strings.HasPrefix(c.Got, string(got)) ||
					!strings.HasPrefix(c.Want, string(want)) || c.Hint() == "" {
					t.Fatalf("Place: %v: expected a conflict about x", err)
				}
				if n := len(steps(r.Plan, ActionConflict)); n != 1 {
					t.Errorf("%d conflict steps: expected 1", n)
				}
				untouched(t, root, before)
			})
		}
	}
}

func target(k Kind) string {
	if k == KindSymlink {
		return "/somewhere"
	}
	return ""
}

func TestS01AConflictInAParentIsReportedOnce(t *testing.T) {
	root := t.TempDir()
	write(t, root+"/data", "")
	before := snapshot(t, root)
	r, err := Place(t.Context(), builtin(t, "node"), PlaceOptions{Root: root})
	if !errors.As(err, new(*Conflict)) || strings.Count(err.Error(), "\n") != 0 {
		t.Fatalf("Place: %v: expected one conflict, not one for each node below", err)
	}
	if got := steps(r.Plan, ActionConflict); len(got) != 1 || got[0] != "/data file→dir" {
		t.Errorf("conflict steps: %v", got)
	}
	untouched(t, root, before)
}

func TestS06DriftOfAModeAndAnOwnerIsRepaired(t *testing.T) {
	needRoot(t)
	root := t.TempDir()
	l := layout(t, "dir /d 0755", "dir /set 2775", "fifo /f 0640")
	place(t, l, root)
	write(t, root+"/d/content", "keep me")
	must(t, os.Chmod(root+"/d", 0o700))
	must(t, os.Chown(root+"/set", 1234, 4321))
	must(t, os.Chmod(root+"/f", 0o666))
	m, err := ReadManifest(DefaultManifest(root))
	must(t, err)
	drifts, err := Check(t.Context(), m)
	must(t, err)
	want := []Drift{
		{"d", root + "/d", KindDir, "mode 0755", "mode 0700"},
		{"f", root + "/f", KindFIFO, "mode 0640", "mode 0666"},
		{"set", root + "/set", KindDir, "owner 0:0", "owner 1234:4321"},
	}
	if !slices.Equal(drifts, want) {
		t.Errorf("Check:\n%v\nexpected\n%v", drifts, want)
	}
	r := place(t, l, root)
	if r.Plan.Changed() != 3 {
		t.Errorf("%d changed: expected 3", r.Plan.Changed())
	}
	for name, mode := range map[string]uint32{"d": unix.S_IFDIR | 0o755, "set": unix.S_IFDIR | 0o2775, "f": unix.S_IFIFO | 0o640} {
		if got := modeOf(t, root+"/"+name); got != mode {
			t.Errorf("%s has mode %o: expected %o", name, got, mode)
		}
	}
	if data, err := os.ReadFile(root + "/d/content"); err != nil || string(data) != "keep me" {
		t.Errorf("content: %q, %v", data, err)
	}
	if drifts, err := Check(t.Context(), m); err != nil || len(drifts) != 0 {
		t.Errorf("Check after the repair: %v, %v", drifts, err)
	}
}

func TestS06AFileMayBeStricterButNotLooser(t *testing.T) {
	root := t.TempDir()
	l := layout(t, "file /loose 0600", "file /strict 0644", "file /linked 0600", "socket /s 0600")
	for _, name := range []string{"loose", "strict", "linked"} {
		write(t, root+"/"+name, "keep me")
	}
	must(t, os.Chmod(root+"/strict", 0o400))
	must(t, os.Link(root+"/linked", root+"/other"))
	s, err := net.Listen("unix", root+"/s")
	must(t, err)
	defer s.Close()
	must(t, os.Chmod(root+"/s", 0o777))
	r := place(t, l, root)
	want := map[string]uint32{"loose": 0o600, "strict": 0o400, "linked": 0o644, "s": 0o777}
	for name, mode := range want {
		if got := modeOf(t, root+"/"+name) & 0o7777; got != mode {
			t.Errorf("%s has mode %o: expected %o", name, got, mode)
		}
	}
	if len(r.Plan.Warnings) != 1 || !strings.Contains(r.Plan.Warnings[0], "2 hard links") {
		t.Errorf("warnings: %q: expected one about the hard links", r.Plan.Warnings)
	}
}

func TestS07ModesAreExactUnderAnyUmask(t *testing.T) {
	for _, mask := range []int{0, 0o027, 0o077, 0o777} {
		withUmask(t, mask)
		root := filepath.Join(t.TempDir(), "root")
		l := builtin(t, "node")
		l.Nodes = append(l.Nodes,
			Node{ID: "deep", Path: "/un/declared/leaf", Kind: KindDir, Mode: 0o3770},
			Node{ID: "deep_fifo", Path: "/un/fifo", Kind: KindFIFO, Mode: 0o666})
		place(t, l, root)
		for _, n := range l.Nodes {
			if !n.Kind.made() || n.Kind == KindSymlink {
				continue
			}
			if got := Mode(modeOf(t, filepath.Join(root, n.Path))) & modeBits; got != n.Mode {
				t.Errorf("umask %03o: %s has mode %s: expected %s", mask, n.Path, got, n.Mode)
			}
		}
		for name, want := range map[string]uint32{"un": 0o755, "un/declared": 0o755, "run/seedbed": 0o755, "run/seedbed/manifest.json": 0o644} {
			if got := modeOf(t, filepath.Join(root, name)) & 0o7777; got != want {
				t.Errorf("umask %03o: %s has mode %o: expected %o", mask, name, got, want)
			}
		}
	}
}

func TestS08ASecondRunWritesNothing(t *testing.T) {
	for _, name := range BuiltinNames() {
		root := filepath.Join(t.TempDir(), "root")
		l := builtin(t, name)
		first := place(t, l, root)
		if first.Plan.Changed() == 0 || !first.Written {
			t.Fatalf("%s: first run: %d changed, written %v", name, first.Plan.Changed(), first.Written)
		}
		before := snapshot(t, root)
		second := place(t, l, root)
		if second.Plan.Changed() != 0 || second.Written {
			t.Errorf("%s: second run: %d changed, written %v: expected nothing", name, second.Plan.Changed(), second.Written)
		}
		if second.Manifest == nil || second.Manifest.Generation != first.Manifest.Generation {
			t.Errorf("%s: second run returns another manifest", name)
		}
		untouched(t, root, before)
	}
}

func TestS08ProgramsThatMadeTheirSocketsChangeNothing(t *testing.T) {
	root := t.TempDir()
	l := builtin(t, "node")
	m := place(t, l, root).Manifest
	s, err := net.Listen("unix", m.Tree().Ephemeral.Containerd.ClientSocket.FullPath())
	must(t, err)
	defer s.Close()
	write(t, m.Tree().Ephemeral.Hosts.FullPath(), "127.0.0.1 localhost")
	before := snapshot(t, root)
	if r := place(t, l, root); r.Plan.Changed() != 0 || r.Written {
		t.Errorf("%d changed, written %v: expected nothing", r.Plan.Changed(), r.Written)
	}
	untouched(t, root, before)
}

func TestS09Symlinks(t *testing.T) {
	l := layout(t, "symlink /l 0777 /nowhere/yet")
	t.Run("absent, target missing", func(t *testing.T) {
		root := t.TempDir()
		place(t, l, root)
		if got, err := os.Readlink(root + "/l"); got != "/nowhere/yet" || err != nil {
			t.Errorf("link: %q, %v", got, err)
		}
	})
	t.Run("the same target", func(t *testing.T) {
		root := t.TempDir()
		must(t, os.Symlink("/nowhere/yet", root+"/l"))
		r := place(t, l, root)
		if got := steps(r.Plan, ActionKeep); len(got) != 1 {
			t.Errorf("keep steps: %v", got)
		}
	})
	t.Run("another target", func(t *testing.T) {
		root := t.TempDir()
		must(t, os.Symlink("/nowhere/else", root+"/l"))
		before := snapshot(t, root)
		_, err := Place(t.Context(), l, PlaceOptions{Root: root})
		var c *Conflict
		if !errors.As(err, &c) || c.Want != "symlink to /nowhere/yet" || c.Got != "symlink to /nowhere/else" {
			t.Errorf("Place: %v: expected a conflict with both targets", err)
		}
		untouched(t, root, before)
	})
	t.Run("of the host: whatever is there stays", func(t *testing.T) {
		root := t.TempDir()
		write(t, root+"/etc/hosts", "127.0.0.1 localhost")
		must(t, os.Symlink("/elsewhere", root+"/etc/machine-id"))
		m := place(t, builtin(t, "node"), root).Manifest
		i := slices.IndexFunc(m.Nodes, func(n Node) bool { return n.ID == "etc.hosts" })
		if n := m.Nodes[i]; n.Kind != KindFile || n.Target != "" || n.State != StatePresent {
			t.Errorf("the manifest says %+v: expected the file that is there", n)
		}
		if got, _ := os.Readlink(root + "/etc/machine-id"); got != "/elsewhere" {
			t.Errorf("machine-id points to %q", got)
		}
		if _, err := ReadManifest(DefaultManifest(root)); err != nil {
			t.Error(err)
		}
	})
}

func TestS10ChecksStartAtTheRoot(t *testing.T) {
	home := userDir(t)
	must(t, os.Chmod(home, 0o777))
	root := filepath.Join(home, "build", "image")
	must(t, os.MkdirAll(root, 0o755))
	place(t, builtin(t, "node"), root)
	if _, err := ReadManifest(DefaultManifest(root)); err != nil {
		t.Errorf("ReadManifest: %v", err)
	}
}

func TestS11LinksAreResolvedInsideTheRoot(t *testing.T) {
	outside := t.TempDir()
	root := filepath.Join(outside, "root")
	must(t, os.MkdirAll(root+"/var", 0o755))
	must(t, os.MkdirAll(root+"/mnt/there", 0o755))
	must(t, os.Symlink("/run", root+"/var/run"))                    // its target is made by the layout
	must(t, os.Symlink("/mnt/data", root+"/data"))                  // its target is absent
	must(t, os.Symlink("../../../../mnt/there", root+"/ephemeral")) // climbs out, were it not for the root
	before := snapshot(t, outside)
	l := builtin(t, "node")
	l.Name = "changed"
	l.Nodes = append(l.Nodes, Node{ID: "through", Path: "/var/run/through", Kind: KindFIFO, Mode: 0o600, Creator: CreatorSeedbed})
	m := place(t, l, root).Manifest
	for name, mode := range map[string]uint32{
		"run/through":                          unix.S_IFIFO | 0o600,
		"mnt/data":                             unix.S_IFDIR | 0o755,
		"mnt/data/containerd":                  unix.S_IFDIR | 0o711,
		"mnt/there/containerd/runsc-logs.fifo": unix.S_IFIFO | 0o600,
		"data":                                 unix.S_IFLNK | 0o777,
	} {
		if got := modeOf(t, filepath.Join(root, name)); got != mode {
			t.Errorf("%s has mode %o: expected %o", name, got, mode)
		}
	}
	for _, line := range snapshot(t, outside) {
		name, _, _ := strings.Cut(line, " ")
		if !strings.HasPrefix(name+"/", root+"/") && !slices.Contains(before, line) && name != outside {
			t.Errorf("outside the root: %s", line)
		}
	}
	if got, want := m.Tree().Data.Containerd.FullPath(), root+"/mnt/data/containerd"; got != want {
		t.Errorf("handle: %s: expected %s, which does not lead out through the link", got, want)
	}
	if r := place(t, l, root); r.Plan.Changed() != 0 || r.Written {
		t.Errorf("second run: %v", r.Plan.Changed())
	}
	if drifts, err := Check(t.Context(), m); err != nil || len(drifts) != 0 {
		t.Errorf("Check: %v, %v", drifts, err)
	}
	if _, err := ReadManifest(DefaultManifest(root)); err != nil {
		t.Error(err)
	}
}

func TestS11HostileLinks(t *testing.T) {
	cases := []struct{ name, target, want string }{
		{"a loop", "/data", "too many levels of symbolic links"},
		{"through a file", "/file/x", "expected dir"},
		{"up out of what is absent", "/absent/../x", "no such file"},
	}
	for _, c := range cases {
		root := t.TempDir()
		write(t, root+"/file", "")
		must(t, os.Symlink(c.target, root+"/data"))
		before := snapshot(t, root)
		_, err := Place(t.Context(), builtin(t, "node"), PlaceOptions{Root: root})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v: expected …%s…", c.name, err, c.want)
		}
		untouched(t, root, before)
	}
	t.Run("to the manifest", func(t *testing.T) {
		root := t.TempDir()
		must(t, os.Symlink("/elsewhere", root+"/run"))
		_, err := Place(t.Context(), layout(t, "dir /a 0755"), PlaceOptions{Root: root})
		if !errors.As(err, new(*Conflict)) || !strings.Contains(err.Error(), "without symbolic links") {
			t.Errorf("Place: %v: expected a conflict", err)
		}
	})
}

func TestS12UndeclaredParentsAreMade(t *testing.T) {
	root := t.TempDir()
	l := layout(t, "file /a/b/file 0600", "symlink /c/d/link 0777 x", "fifo /e/f/fifo 0600", "socket /g/h/sock 0600")
	r := place(t, l, root)
	for _, dir := range []string{"a", "a/b", "c", "c/d", "e", "e/f", "g", "g/h"} {
		if got := modeOf(t, filepath.Join(root, dir)); got != unix.S_IFDIR|0o755 {
			t.Errorf("%s has mode %o: expected a directory 0755", dir, got)
		}
	}
	if got := steps(r.Plan, ActionMake); !slices.Contains(got, "/a/b absent→dir 0755 0:0") && os.Geteuid() == 0 {
		t.Errorf("make steps: %v: expected the parents among them", got)
	}
}

func TestS13FIFOsAreReal(t *testing.T) {
	withUmask(t, 0o077)
	root := t.TempDir()
	place(t, layout(t, "fifo /f 0622"), root)
	if got := modeOf(t, root+"/f"); got != unix.S_IFIFO|0o622 {
		t.Errorf("mode %o: expected a FIFO 0622", got)
	}
}

func TestS14SocketPathTooLongUnderTheRoot(t *testing.T) {
	root := filepath.Join(t.TempDir(), strings.Repeat("r", 100))
	r := place(t, layout(t, "socket /s 0600"), root)
	if len(r.Plan.Warnings) != 1 || !strings.Contains(r.Plan.Warnings[0], "at most 107") {
		t.Errorf("warnings: %q: expected one with both lengths", r.Plan.Warnings)
	}
}

func TestS17Roots(t *testing.T) {
	work := t.TempDir()
	t.Chdir(work)
	for in, want := range map[string]string{"": "/", "/": "/", "//": "/", "/x/": "/x", "/x/../x": "/x", "x": work + "/x", "./x/": work + "/x"} {
		if got, err := CleanRoot(in); got != want || err != nil {
			t.Errorf("CleanRoot(%q): %q, %v: expected %q", in, got, err, want)
		}
	}
	if _, err := CleanRoot("a\x00b"); err == nil {
		t.Error("CleanRoot accepts NUL")
	}
	must(t, os.Mkdir("x", 0o755))
	for _, root := range []string{"x", "x/", work + "//x/", work + "/x/../x"} {
		m := place(t, builtin(t, "node"), root).Manifest
		if m.Root != work+"/x" {
			t.Errorf("root %q: the manifest says %q", root, m.Root)
		}
		for _, n := range m.Nodes {
			full, err := m.FullPath(n.ID)
			if err != nil || !strings.HasPrefix(full, work+"/x") || full != filepath.Clean(full) {
				t.Errorf("root %q: %s is %q, %v", root, n.ID, full, err)
			}
		}
	}
}

// TestS17RootWithoutAName: a root that JSON cannot hold could not be found in its manifest again.
func TestS17RootWithoutAName(t *testing.T) {
	for _, root := range []string{t.TempDir() + "/\xff", "a\x00b"} {
		if _, err := Place(t.Context(), layout(t, "dir /a 0755"), PlaceOptions{Root: root}); !errors.Is(err, unix.EINVAL) {
			t.Errorf("Place into %q: %v: expected EINVAL", root, err)
		}
	}
}

func TestS18OnlyWhatIsMissingIsMade(t *testing.T) {
	root := t.TempDir()
	l := builtin(t, "node")
	place(t, l, root)
	must(t, os.RemoveAll(root+"/run"))
	must(t, os.RemoveAll(root+"/ephemeral/containerd"))
	before := snapshot(t, root+"/data")
	r := place(t, l, root)
	for _, s := range steps(r.Plan, ActionMake) {
		if !strings.HasPrefix(s, "/run") && !strings.HasPrefix(s, "/ephemeral/containerd") {
			t.Errorf("made again: %s", s)
		}
	}
	if !r.Written {
		t.Error("the manifest was not written")
	}
	untouched(t, root+"/data", before)
}

func TestS19CheckNamesEachDrift(t *testing.T) {
	root := t.TempDir()
	m := place(t, builtin(t, "node"), root).Manifest
	write(t, root+"/data/unmanaged", "")
	write(t, root+"/data/node/roles.pb", "")
	must(t, os.Chmod(root+"/data/node/roles.pb", 0o666))
	must(t, os.Chmod(root+"/data/volumes", 0o777))
	must(t, os.Remove(root+"/data/etcd/data"))
	must(t, os.Remove(root+"/ephemeral/containerd/runsc-logs.fifo"))
	write(t, root+"/ephemeral/containerd/runsc-logs.fifo", "")
	before := snapshot(t, root)
	drifts, err := Check(t.Context(), m)
	must(t, err)
	var got []string
	for _, d := range drifts {
		got = append(got, d.ID+": "+d.Got)
	}
	want := []string{
		"data.etcd.data: absent", "data.node.persistent_roles: mode 0666", "data.volumes: mode 0777",
		"ephemeral.containerd.runsc_logs_fifo: file",
	}
	if !slices.Equal(got, want) {
		t.Errorf("Check:\n%q\nexpected\n%q", got, want)
	}
	untouched(t, root, before)
}

func TestS20OrphansStay(t *testing.T) {
	root := t.TempDir()
	place(t, layout(t, "dir /a 0755", "dir /b 0755", "fifo /b/f 0600", "dir /gone 0755"), root)
	must(t, os.Remove(root+"/gone"))
	r := place(t, layout(t, "dir /a 0755"), root)
	if got := steps(r.Plan, ActionOrphan); len(got) != 2 || !r.Written || r.Plan.Changed() != 0 {
		t.Errorf("orphans: %v, written %v, %d changed: expected /b and /b/f", got, r.Written, r.Plan.Changed())
	}
	if got := modeOf(t, root+"/b/f"); got != unix.S_IFIFO|0o600 {
		t.Errorf("the orphan has mode %o", got)
	}
}
