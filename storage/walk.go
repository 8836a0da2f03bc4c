package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	maxLinks = 40  // as many links as the kernel follows in one path: path_resolution(7)
	maxOpen  = 256 // directories held open at a time
)

// identity tells one inode from another.
type identity struct{ dev, ino uint64 }

// found is what stands at a name. Its zero value, with the empty kind, is nothing.
type found struct {
	identity
	kind     Kind
	mode     Mode
	uid, gid int
	links    uint64
}

// newFound reads a stat result.
func newFound(st *unix.Stat_t) found {
	return found{
		identity: identity{uint64(st.Dev), st.Ino},
		kind:     kindOf(st.Mode),
		mode:     Mode(st.Mode) & modeBits,
		uid:      int(st.Uid),
		gid:      int(st.Gid),
		links:    uint64(st.Nlink),
	}
}

// kindOf reads the type bits of a mode. Types that no node can have get words that only messages use.
func kindOf(mode uint32) Kind {
	switch mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return KindDir
	case unix.S_IFREG:
		return KindFile
	case unix.S_IFIFO:
		return KindFIFO
	case unix.S_IFSOCK:
		return KindSocket
	case unix.S_IFLNK:
		return KindSymlink
	case unix.S_IFBLK:
		return "block device"
	case unix.S_IFCHR:
		return "character device"
	}
	return "something unknown"
}

// owner is the owner in the form that chown(1) takes.
func (f found) owner() string { return fmt.Sprintf("%d:%d", f.uid, f.gid) }

// walker walks a root by descriptors, one name at a time. It resolves links inside the root as openat2(2) does with
// RESOLVE_IN_ROOT, but in steps of its own, so that it can say what stands in the way, go through directories that are
// yet to be made, and give the path that a node really has.
type walker struct {
	hostPath string // of the root
	root     *folder
	caller   *owner // whom it is safe for; nil walks without a care, to look
	opened   []*folder
	beside   []*walker // of a manifest outside the root

	ahead *sighting // of the node that is planned, nil when there is none

	lastPath string  // where the last locate led: nodes come by directories
	lastDir  *folder // nil before
}

// folder is a directory inside the root: found, or absent and to be made.
type folder struct {
	walk   *walker
	up     *folder // nil above the root
	name   string
	path   string // inside the root, without links
	absent bool
	found  found
	fd     int       // O_PATH, or -1
	inside []reached // by name

	mount *mounting // it is the root of a file system that is yet to be mounted
	step  int       // index+1 of the plan's step that makes it
	node  *Node     // the declared node that it is
}

// reached is the remembered result of entering a name.
type reached struct {
	name   string
	folder *folder
	err    error
}

// newWalker opens the root, which has to be clean and absolute. When the root is absent, its parent has to be there.
func newWalker(root string) (*walker, error) {
	w := &walker{hostPath: root}
	w.root = &folder{walk: w, path: "/", fd: -1}
	fd, err := openPath(root)
	if err == nil {
		w.root.fd = fd
		w.opened = append(w.opened, w.root)
		return w, w.root.stat(fd)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	above, err := openPath(filepath.Dir(root))
	if errors.Is(err, fs.ErrNotExist) {
		err = &Conflict{Path: filepath.Dir(root), Want: string(KindDir), Got: describe("")}
	}
	if err != nil {
		return nil, &advised{err, fmt.Sprintf("the directory that %q is to be made in has to be there", root)}
	}
	w.root.absent, w.root.name = true, filepath.Base(root)
	w.root.up = &folder{walk: w, name: filepath.Dir(root), path: "..", fd: above}
	w.opened = append(w.opened, w.root.up)
	return w, nil
}

// openPath opens a directory on the host; links in the path of the root itself are followed.
func openPath(name string) (int, error) {
	fd, err := unix.Open(name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return fd, nil
}

// Close closes every descriptor.
func (w *walker) Close() {
	for _, f := range w.opened {
		f.close()
	}
	w.opened = nil
	for _, b := range w.beside {
		b.Close()
	}
}

// locate walks to the directory that holds the last name of a clean path inside the root, and returns both.
func (w *walker) locate(p string) (*folder, string, error) {
	parent, name := path.Split(p)
	if w.lastDir != nil && w.lastPath == parent {
		return w.lastDir, name, nil
	}
	dir := w.root
	for n := range strings.SplitSeq(parent, "/") {
		var err error
		if dir, err = w.enter(dir, n, 0); err != nil {
			return nil, "", err
		}
	}
	w.lastPath, w.lastDir = parent, dir
	return dir, name, nil
}

// enter goes from a directory into the one of the given name, through links, and remembers the result. A name at which
// nothing stands gives an absent folder. Anything else is a [*Conflict].
func (w *walker) enter(dir *folder, name string, hops int) (*folder, error) {
	switch name {
	case "", ".":
		return dir, nil
	case "..":
		if dir == w.root {
			return dir, nil
		}
		if dir.absent {
			return nil, dir.fail("enter", "..", unix.ENOENT)
		}
		return dir.up, nil
	}
	if at, known := dir.entered(name); known {
		return dir.inside[at].folder, dir.inside[at].err
	}
	f, err := w.reach(dir, name, hops)
	at, _ := dir.entered(name) // a link may have led back into dir
	dir.inside = slices.Insert(dir.inside, at, reached{name, f, err})
	return f, err
}

// entered returns where a name is, or is to be, in what was reached from the folder. Names mostly come in their order.
func (f *folder) entered(name string) (at int, known bool) {
	if n := len(f.inside); n == 0 || f.inside[n-1].name < name {
		return n, false
	}
	return slices.BinarySearchFunc(f.inside, name, func(r reached, name string) int { return strings.Compare(r.name, name) })
}

func (w *walker) reach(dir *folder, name string, hops int) (*folder, error) {
	got, err := dir.look(name)
	if err != nil {
		return nil, err
	}
	if got.kind == KindDir {
		if err := dir.mayStep(name, got.uid); err != nil {
			return nil, err
		}
	}
	switch got.kind {
	case KindDir, "":
		return &folder{
			walk: w, up: dir, name: name, path: dir.pathOf(name), fd: -1,
			found: got, absent: got.kind == "",
		}, nil
	case KindSymlink:
		return w.follow(dir, name, hops)
	}
	return nil, &Conflict{Path: dir.hostOf(name), Want: string(KindDir), Got: describe(got.kind)}
}

// follow enters the directory that a link in dir points to. An absolute target begins at the root.
func (w *walker) follow(dir *folder, name string, hops int) (*folder, error) {
	if hops >= maxLinks {
		return nil, dir.fail("follow", name, unix.ELOOP)
	}
	if err := dir.mayFollow(name); err != nil {
		return nil, err
	}
	target, err := dir.readlink(name)
	if err != nil {
		return nil, err
	}
	at := dir
	if strings.HasPrefix(target, "/") {
		at = w.root
	}
	for n := range strings.SplitSeq(target, "/") {
		if at, err = w.enter(at, n, hops+1); err != nil {
			return nil, err
		}
	}
	return at, nil
}

// pathOf is the path inside the root of a name in the folder.
func (f *folder) pathOf(name string) string {
	return strings.TrimSuffix(f.path, "/") + "/" + name
}

// host is the folder's path on the host.
func (f *folder) host() string {
	if f.path == ".." {
		return f.name
	}
	return filepath.Join(f.walk.hostPath, f.path)
}

// hostOf is the path on the host of a name in the folder.
func (f *folder) hostOf(name string) string { return filepath.Join(f.host(), name) }

// fail is a *fs.PathError about a name in the folder.
func (f *folder) fail(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: f.hostOf(name), Err: err}
}

// look returns what stands at a name in the folder, without following it.
func (f *folder) look(name string) (found, error) {
	if f.absent {
		return found{}, nil
	}
	if s := f.walk.ahead; s != nil && s.in == f.found.identity && s.name == name {
		return s.found, nil
	}
	fd, err := f.open()
	if err != nil {
		return found{}, err
	}
	var st unix.Stat_t
	switch err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err {
	case nil:
		return newFound(&st), nil
	case unix.ENOENT:
		return found{}, nil
	default:
		return found{}, f.fail("stat", name, err)
	}
}

func (f *folder) readlink(name string) (string, error) {
	fd, err := f.open()
	if err != nil {
		return "", err
	}
	buf := make([]byte, maxPath+1)
	n, err := unix.Readlinkat(fd, name, buf)
	if err != nil {
		return "", f.fail("readlink", name, err)
	}
	return string(buf[:n]), nil
}

// open returns an O_PATH descriptor of the folder, which the walker owns. A directory that is no longer the one that
// was found is refused.
func (f *folder) open() (int, error) {
	if f.fd >= 0 {
		return f.fd, nil
	}
	if f.mount != nil {
		return -1, f.fail("open", "", unix.ENOENT)
	}
	above, err := f.up.open()
	if err != nil {
		return -1, err
	}
	fd, err := unix.Openat(above, f.name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, f.fail("open", "", err)
	}
	want := f.found.identity
	if err := f.stat(fd); err != nil {
		unix.Close(fd)
		return -1, err
	}
	if want != f.found.identity {
		unix.Close(fd)
		return -1, f.fail("open", "", errReplaced)
	}
	f.walk.hold(f, fd)
	return fd, nil
}

// errReplaced is the cause when somebody changes the tree while it is being placed.
var errReplaced = errors.New("replaced by something else meanwhile")

// stat refreshes what is known of the folder itself.
func (f *folder) stat(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return f.fail("stat", "", err)
	}
	f.found = newFound(&st)
	return nil
}

// modeless reports whether the directory is on a file system that keeps neither owners nor modes, such as the EFI
// system partition's: they come from its mount options, and chmod(2) there is an error. See statfs(2) for the numbers.
func (f *folder) modeless() bool {
	const vfat, exfat = 0x4d44, 0x2011bab0
	fd, err := f.open()
	if err != nil {
		return false
	}
	var st unix.Statfs_t
	return unix.Fstatfs(fd, &st) == nil && (st.Type == vfat || st.Type == exfat)
}

// hold keeps the folder's descriptor, and closes those of other branches when there are too many.
func (w *walker) hold(f *folder, fd int) {
	if len(w.opened) >= maxOpen {
		w.keepOnly(f.up)
	}
	f.fd = fd
	w.opened = append(w.opened, f)
}

// keepOnly closes every descriptor but those of the branch and those that cannot be opened again from above: the root's,
// and those of file systems that are mounted nowhere yet.
func (w *walker) keepOnly(branch *folder) {
	keep := map[*folder]bool{w.root: true}
	for f := branch; f != nil; f = f.up {
		keep[f] = true
	}
	var kept []*folder
	for _, f := range w.opened {
		if keep[f] || f.mount != nil {
			kept = append(kept, f)
			continue
		}
		f.close()
	}
	w.opened = kept
}

func (f *folder) close() {
	if f.fd >= 0 {
		unix.Close(f.fd)
		f.fd = -1
	}
}

// describe is the kind in the words of a message.
func describe(k Kind) string {
	if k == "" {
		return "nothing"
	}
	return string(k)
}
