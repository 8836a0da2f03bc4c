package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const placeAgain = "run seedbed storage place, as the user that the tree belongs to; it writes a manifest that can be trusted"

// untrusted is an ErrUntrusted about a path, with the next step.
func untrusted(name, advice, format string, args ...any) error {
	return &advised{fmt.Errorf("read %q: %w: %s", name, ErrUntrusted, fmt.Sprintf(format, args...)), advice}
}

// truster tells what only root, or a caller in what is its own, can have written. Its findings are of type *doubt.
type truster struct {
	caller owner
	own    bool // the caller's own files are trusted too
}

// doubt is why a part of the way to a manifest is not to be trusted.
type doubt struct{ name, fact, advice string }

func (d *doubt) Error() string { return d.name + ": " + d.fact }

// reading is the error of a reader: an ErrUntrusted, if it is a doubt.
func reading(err error) error {
	if d := (*doubt)(nil); errors.As(err, &d) {
		return untrusted(d.name, d.advice+", then "+placeAgain, "%s", d.fact)
	}
	return err
}

// chain splits a manifest's path: what lies above the root is the business of whoever names the root, and below it each
// part is looked at. A manifest elsewhere is trusted in a directory that is.
func chain(name string) (anchor string, parts []string) {
	if root, ok := strings.CutSuffix(name, manifestInRoot); ok {
		return "/" + strings.Trim(root, "/"), strings.Split(strings.Trim(manifestInRoot, "/"), "/")
	}
	return filepath.Dir(name), []string{filepath.Base(name)}
}

// readTrusted opens each part of the way without following links, and reads the file at its end: a regular one with one
// name, at most as long as any manifest and a byte.
func readTrusted(name string) (text string, err error) {
	defer func() { err = reading(err) }()
	anchor, parts := chain(name)
	at, err := openPath(anchor)
	if err != nil {
		return "", err
	}
	defer func() { unix.Close(at) }()
	t := truster{caller: owner{os.Geteuid(), os.Getegid()}}
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return "", &fs.PathError{Op: "stat", Path: anchor, Err: err}
	}
	if err := t.anchor(anchor, newFound(&st), len(parts) == 1); err != nil {
		return "", err
	}
	full := anchor
	for _, part := range parts[:len(parts)-1] {
		full = filepath.Join(full, part)
		next, err := t.open(at, part, full, KindDir, unix.O_PATH)
		if err != nil {
			return "", err
		}
		unix.Close(at)
		at = next
	}
	fd, err := t.open(at, parts[len(parts)-1], name, KindFile, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return "", err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	return readAll(f, maxManifest)
}

// anchor looks at the directory where trust begins. It may be sticky, or writable by the caller's own group: nobody
// can replace what others have in it then.
func (t *truster) anchor(name string, got found, elsewhere bool) error {
	t.own = t.caller.uid != 0 && (elsewhere || got.uid == t.caller.uid)
	if err := t.owner(name, got); err != nil {
		return err
	}
	if t.caller.othersWrite(got) && got.mode&unix.S_ISVTX == 0 {
		return t.writable(name, got)
	}
	return nil
}

// open opens one part of the way and looks at it.
func (t *truster) open(at int, part, full string, kind Kind, flags int) (int, error) {
	fd, err := unix.Openat(at, part, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == unix.ELOOP {
		return -1, t.kind(full, KindSymlink, kind)
	}
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: full, Err: err}
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err != nil {
		err = &fs.PathError{Op: "stat", Path: full, Err: err}
	} else {
		err = t.look(full, newFound(&st), kind)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// look checks kind, owner, mode and, of a file, the number of names.
func (t *truster) look(name string, got found, kind Kind) error {
	if got.kind != kind {
		return t.kind(name, got.kind, kind)
	}
	if err := t.owner(name, got); err != nil {
		return err
	}
	if got.mode&0o022 != 0 {
		return t.writable(name, got)
	}
	if kind == KindFile && got.links != 1 {
		return &doubt{name, fmt.Sprintf("it has %d hard links: expected 1", got.links), "remove its other names (find -samefile)"}
	}
	return nil
}

func (t *truster) kind(name string, got, want Kind) error {
	words := map[Kind]string{KindDir: "a directory", KindFile: "a regular file", KindSymlink: "a symbolic link"}
	found, ok := words[got]
	if !ok {
		found = string(got)
	}
	return &doubt{name, fmt.Sprintf("it is %s: expected %s", found, words[want]), fmt.Sprintf("move %q away", name)}
}

func (t *truster) owner(name string, got found) error {
	if got.uid == 0 || t.own && got.uid == t.caller.uid {
		return nil
	}
	expected := "root"
	if t.own && t.caller.uid != 0 {
		expected = fmt.Sprintf("root or user %d", t.caller.uid)
	}
	return &doubt{
		name, fmt.Sprintf("it is owned by user %d: expected %s", got.uid, expected),
		fmt.Sprintf("run as user %d, or give it to root (chown root %s)", got.uid, name),
	}
}

func (t *truster) writable(name string, got found) error {
	return &doubt{
		name, fmt.Sprintf("it has mode %s: expected it writable by its owner only", got.mode),
		fmt.Sprintf("take the right away (chmod go-w %s)", name),
	}
}

// belongs checks that the manifest is about the root that it lies in, about this boot, and of this seedbed's layout.
func (m *Manifest) belongs(name string) error {
	if clean, err := CleanRoot(m.Root); err != nil || clean != m.Root {
		return untrusted(name, placeAgain, "its root is %q: expected an absolute, clean path", m.Root)
	}
	if at, ok := strings.CutSuffix(name, manifestInRoot); ok && !sameDir("/"+strings.Trim(at, "/"), m.Root) {
		return untrusted(name, placeAgain, "it describes the root %q, not the one it lies in", m.Root)
	}
	if err := m.fitsBuiltin(name); err != nil {
		return err
	}
	if m.Root != "/" {
		return nil
	}
	id, err := bootID()
	if err == nil && id != m.BootID {
		return untrusted(name, placeAgain, "it was written in another boot (%.8s, now %.8s)", m.BootID, id)
	}
	return err
}

// fitsBuiltin checks that what was placed from a built-in layout is what this seedbed has under that name: after an
// update it may be another. A layout that came from a file is its owner's to change.
func (m *Manifest) fitsBuiltin(name string) error {
	if m.LayoutFile != "" || !slices.Contains(BuiltinNames(), m.Layout) {
		return nil
	}
	l, err := Builtin(m.Layout)
	if err == nil && l.Declaration != m.Declaration {
		return untrusted(name, placeAgain, "its declaration is %.14s, that of the built-in layout %s is %.14s", m.Declaration, m.Layout, l.Declaration)
	}
	return err
}

// sameDir reports whether two paths are the same directory.
func sameDir(a, b string) bool {
	if a == b {
		return true
	}
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// CheckNodes checks, before a program uses the nodes with these ids, that what is there is still what was placed: of the
// declared kind, no looser than declared, of an owner that may be trusted, reached without unsafe steps, and on the
// mount that it was placed on. It does not look for nodes that the manifest does not have, or that are not there. The
// findings are joined, and each is [ErrUntrusted].
func (m *Manifest) CheckNodes(ids ...string) error {
	w, err := newWalker(m.Root)
	if err != nil {
		return err
	}
	defer w.Close()
	w.caller = &owner{os.Geteuid(), os.Getegid()}
	var findings []error
	mounts := map[string]bool{}
	for i := range m.Nodes {
		n := &m.Nodes[i]
		if !slices.Contains(ids, n.ID) {
			continue
		}
		findings = append(findings, m.checkNode(w, n))
		if n.Mount != "" && !mounts[n.Mount] {
			mounts[n.Mount] = true
			findings = append(findings, m.checkMount(w, n.Mount))
		}
	}
	return errors.Join(findings...)
}

func (m *Manifest) checkNode(w *walker, n *Node) error {
	full := filepath.Join(m.Root, n.Path)
	bad := func(format string, args ...any) error {
		return &advised{
			fmt.Errorf("use node %s: %q: %w: %s", n.ID, full, ErrUntrusted, fmt.Sprintf(format, args...)),
			"see what changed with seedbed storage check; seedbed storage place puts modes and owners right",
		}
	}
	dir, name, err := w.locate(n.Path)
	var got found
	if err == nil {
		got, err = dir.look(name)
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		return err
	case err != nil:
		return bad("%v", err)
	case got.kind == "":
		return nil // whoever uses it says what it makes of that
	case got.kind != n.Kind:
		return bad("it is a %s: expected a %s", got.kind, n.Kind)
	case !w.caller.trusts(got.uid) && got.uid != n.UID:
		return bad("it is owned by user %d: expected user %d", got.uid, n.UID)
	case n.Kind != KindSymlink && got.mode&^n.Mode != 0 && dir.fd >= 0 && !dir.modeless():
		return bad("it has mode %s: expected %s or tighter", got.mode, n.Mode)
	}
	return nil
}

// checkMount checks that a mount that was there is: data would land on another file system, and be hidden later.
func (m *Manifest) checkMount(w *walker, id string) error {
	i := slices.IndexFunc(m.Mounts, func(o Mount) bool { return o.ID == id })
	if i < 0 || m.Mounts[i].State != MountMounted {
		return nil
	}
	dir, name, err := w.locate(m.Mounts[i].Path)
	if err != nil {
		return nil // the node says so
	}
	f, err := w.enter(dir, name, 0)
	if err != nil || f.absent {
		return nil
	}
	fd, err := f.open()
	if err != nil {
		return err
	}
	r, err := mountOf(fd, "")
	if err != nil || r.isRoot {
		return err
	}
	return &advised{
		fmt.Errorf("use mount %s: %q: %w: it is no mount point: expected %s, as when it was placed", id, f.host(), ErrUntrusted, m.Mounts[i].wanted()),
		"mount it again, then run seedbed storage place",
	}
}
