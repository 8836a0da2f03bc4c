package storage

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestS15ReadOnly(t *testing.T) {
	root := t.TempDir()
	l := builtin(t, "node")
	place(t, l, root)
	must(t, os.Remove(root+"/data/volumes"))
	mount(t, root, root, "", unix.MS_BIND, "")
	must(t, unix.Mount("", root, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	before := snapshot(t, root)
	_, err := Place(t.Context(), l, PlaceOptions{Root: root})
	if !errors.Is(err, syscall.EROFS) || !strings.Contains(err.Error(), root+"/data") {
		t.Errorf("Place: %v: expected read-only file system, and where", err)
	}
	if errors.As(err, new(*Interrupted)) {
		t.Errorf("Place: %v: expected to be refused before the first write", err)
	}
	untouched(t, root, before)
}

func TestS15NothingToDoWorksReadOnly(t *testing.T) {
	root := t.TempDir()
	l := builtin(t, "node")
	place(t, l, root)
	mount(t, root, root, "", unix.MS_BIND, "")
	must(t, unix.Mount("", root, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	if r := place(t, l, root); r.Plan.Changed() != 0 || r.Written {
		t.Errorf("%d changed, written %v", r.Plan.Changed(), r.Written)
	}
}

func TestS15Full(t *testing.T) {
	for name, options := range map[string]string{"no blocks": "size=64k,mode=0755", "no inodes": "nr_inodes=70,mode=0755"} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			mount(t, "seedbed-test", root, "tmpfs", 0, options)
			l := builtin(t, "node")
			place(t, l, root)
			must(t, os.Remove(root+"/data/volumes"))
			must(t, os.Chmod(root+"/data/etcd", 0o755))
			fillUp(t, root)
			manifest, err := os.ReadFile(DefaultManifest(root))
			must(t, err)
			l.Nodes = append(l.Nodes, Node{ID: "more", Path: "/more", Kind: KindDir, Mode: 0o700})
			_, err = Place(t.Context(), l, PlaceOptions{Root: root})
			var i *Interrupted
			if !errors.Is(err, syscall.ENOSPC) || !errors.As(err, &i) || i.Undone != i.Done || i.Withdrawn {
				t.Fatalf("Place: %v: expected no space, and everything taken back", err)
			}
			if after, err := os.ReadFile(DefaultManifest(root)); err != nil || string(after) != string(manifest) {
				t.Errorf("the old manifest is not intact: %v", err)
			}
			if got := modeOf(t, root+"/data/etcd"); got != unix.S_IFDIR|0o755 {
				t.Errorf("data/etcd has mode %o: expected what it was", got)
			}
			for _, gone := range []string{"/more", "/data/volumes"} {
				if _, err := os.Lstat(root + gone); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%s is left: %v", gone, err)
				}
			}
			debris, err := filepath.Glob(root + "/run/seedbed/.seedbed-*")
			if err != nil || len(debris) > 0 {
				t.Errorf("debris: %v, %v", debris, err)
			}
		})
	}
}

// fillUp writes small files, then one byte at a time, until the file system takes no more.
func fillUp(t *testing.T, dir string) {
	t.Helper()
	must(t, os.Mkdir(dir+"/ballast", 0o700))
	f, err := os.Create(dir + "/ballast/block")
	must(t, err)
	defer f.Close()
	for i := range 20 {
		if _, err := f.Write(make([]byte, 4096)); err != nil {
			return
		}
		if err := os.Mkdir(dir+"/ballast/"+strings.Repeat("d", i+1), 0o700); err != nil {
			return
		}
	}
}

func TestS16DryRunWritesNothing(t *testing.T) {
	root := t.TempDir()
	must(t, os.Mkdir(root+"/chmod", 0o700))
	must(t, os.Mkdir(root+"/keep", 0o755))
	write(t, root+"/conflict", "")
	lines := []string{"dir /chmod 0755", "dir /keep 0755", "dir /make 0755", "socket /reserve 0600"}
	before := snapshot(t, root)
	p, err := NewPlan(t.Context(), layout(t, lines...), PlaceOptions{Root: root})
	must(t, err)
	for action, want := range map[Action]int{ActionChmod: 1, ActionKeep: 1, ActionMake: 3, ActionReserve: 1} {
		if got := steps(p, action); len(got) != want {
			t.Errorf("%s: %v: expected %d", action, got, want)
		}
	}
	if p.Changed() != 4 {
		t.Errorf("%d would change: expected 4", p.Changed())
	}
	p, err = NewPlan(t.Context(), layout(t, append(lines, "dir /conflict 0755")...), PlaceOptions{Root: root})
	if !errors.As(err, new(*Conflict)) || p == nil || len(steps(p, ActionConflict)) != 1 || len(steps(p, ActionMake)) == 0 {
		t.Errorf("NewPlan: %v: expected the plan and a conflict", err)
	}
	untouched(t, root, before)
}

func TestS16DryRunOfANewRoot(t *testing.T) {
	above := t.TempDir()
	before := snapshot(t, above)
	p, err := NewPlan(t.Context(), builtin(t, "node"), PlaceOptions{Root: above + "/root"})
	must(t, err)
	untouched(t, above, before)
	if r := place(t, builtin(t, "node"), above+"/root"); r.Plan.Changed() != p.Changed() {
		t.Errorf("%d changed: the dry run said %d", r.Plan.Changed(), p.Changed())
	}
}
