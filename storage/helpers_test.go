package storage

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// builtin returns a built-in layout.
func builtin(t *testing.T, name string) *Layout {
	t.Helper()
	l, err := Builtin(name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// layout makes a layout of nodes written as "kind path mode [target]"; each id is made of the path.
func layout(t *testing.T, lines ...string) *Layout {
	t.Helper()
	l := &Layout{Schema: Schema, Name: "test", Nodes: []Node{}, Mounts: []Mount{}}
	for _, line := range lines {
		f := append(strings.Fields(line), "")
		n := Node{Kind: Kind(f[0]), Path: f[1], Target: f[3]}
		if err := n.Mode.UnmarshalText([]byte(f[2])); err != nil {
			t.Fatal(err)
		}
		n.ID = strings.NewReplacer("/", ".", "-", "_").Replace(strings.ToLower(strings.Trim(n.Path, "/")))
		if n.ID == "" {
			n.ID = "root"
		}
		n.Creator = n.creator()
		l.Nodes = append(l.Nodes, n)
	}
	l.Declaration = l.Digest()
	return l
}

// place places and fails the test on any error.
func place(t *testing.T, l *Layout, root string) *Result {
	t.Helper()
	r, err := Place(t.Context(), l, PlaceOptions{Root: root})
	if err != nil {
		t.Fatalf("Place: %v", err)
	}
	return r
}

// must fails the test on an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// write makes a file, and the directories above it.
func write(t *testing.T, name, content string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(name), 0o755))
	must(t, os.WriteFile(name, []byte(content), 0o644))
}

// snapshot lists everything below root with all that a write would change; access times are left out.
func snapshot(t *testing.T, root string) []string {
	t.Helper()
	var lines []string
	must(t, filepath.WalkDir(root, func(p string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(p, &st); err != nil {
			return err
		}
		lines = append(lines, fmt.Sprintf("%s %o %d:%d ino %d links %d size %d mtime %d.%d ctime %d.%d", p, st.Mode, st.Uid, st.Gid,
			st.Ino, st.Nlink, st.Size, st.Mtim.Sec, st.Mtim.Nsec, st.Ctim.Sec, st.Ctim.Nsec))
		return nil
	}))
	return lines
}

// untouched fails the test when something was written below root since the snapshot.
func untouched(t *testing.T, root string, before []string) {
	t.Helper()
	after := snapshot(t, root)
	for _, line := range after {
		if !slices.Contains(before, line) {
			t.Errorf("written: %s", line)
		}
	}
	if len(after) < len(before) {
		t.Errorf("%d entries are gone", len(before)-len(after))
	}
}

// modeOf returns type and permission bits as stat(2) has them.
func modeOf(t *testing.T, name string) uint32 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(name, &st); err != nil {
		t.Fatalf("lstat %s: %v", name, err)
	}
	return st.Mode
}

// withUmask sets the umask for one test.
func withUmask(t *testing.T, mask int) {
	t.Helper()
	old := syscall.Umask(mask)
	t.Cleanup(func() { syscall.Umask(old) })
}

// needRoot skips a test that only root can run.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts file systems or changes owners")
	}
}

// mount mounts for one test, or skips it where mounting is not allowed.
func mount(t *testing.T, source, target, fsType string, flags uintptr, data string) {
	t.Helper()
	needRoot(t)
	if err := unix.Mount(source, target, fsType, flags, data); err != nil {
		t.Skipf("needs the right to mount: mount %s: %v", target, err)
	}
	t.Cleanup(func() { unix.Unmount(target, unix.MNT_DETACH) })
}

// asUser runs f on a thread of its own that belongs to user and group 65534 and has no capabilities.
func asUser(t *testing.T, f func() error) error {
	t.Helper()
	needRoot(t)
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		for _, call := range []uintptr{unix.SYS_SETRESGID, unix.SYS_SETRESUID} {
			if _, _, e := unix.RawSyscall(call, 65534, 65534, 65534); e != 0 {
				result <- e
				return
			}
		}
		result <- f()
	}()
	return <-result
}

// userDir returns a directory that user 65534 owns and can reach.
func userDir(t *testing.T) string {
	t.Helper()
	needRoot(t)
	dir, err := os.MkdirTemp("/tmp", "storage-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	must(t, os.Chown(dir, 65534, 65534))
	return dir
}

// steps returns the plan's steps of one action as "path from→to".
func steps(p *Plan, a Action) []string {
	var out []string
	for _, s := range p.Steps {
		if s.Action == a {
			out = append(out, fmt.Sprintf("%s %s→%s", s.Path, s.From, s.To))
		}
	}
	return out
}
