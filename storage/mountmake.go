package storage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mounting is a file system that is to be mounted: built detached, filled, and moved into place when the part of the
// tree that it holds is whole, so that nobody sees it half-done.
type mounting struct {
	Mount
	point    *folder // the directory that will be hidden
	at       mountRef
	attached bool
}

// newMounting prepares the mount that a layout asks for, and finds out without making anything whether the kernel
// takes its options.
func newMounting(m Mount, point *folder) (*mounting, error) {
	g := &mounting{Mount: m, point: point}
	ctx, err := g.configure(nil)
	if err != nil {
		return nil, err
	}
	return g, unix.Close(ctx)
}

// configure opens a file system context (fsopen(2)) and gives it the options of the layout and of the node.
func (g *mounting) configure(n *Node) (ctx int, err error) {
	ctx, err = unix.Fsopen(g.FSType, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, g.fail("open "+g.FSType, err)
	}
	settings := append([]string{"source=" + source(g.Mount)}, superSettings(g.Mount)...)
	if n != nil {
		settings = append(settings, "mode="+n.Mode.String(), "uid="+strconv.Itoa(n.UID), "gid="+strconv.Itoa(n.GID))
	}
	for _, s := range settings {
		key, value, ok := strings.Cut(s, "=")
		if ok {
			err = unix.FsconfigSetString(ctx, key, value)
		} else {
			err = unix.FsconfigSetFlag(ctx, key)
		}
		if err != nil {
			err = errors.Join(g.fail("set option "+s, explained(ctx, err)), unix.Close(ctx))
			return -1, err
		}
	}
	return ctx, nil
}

// source is what the mount table shows as the source of a file system that needs no device.
func source(m Mount) string {
	if m.Source != "" {
		return m.Source
	}
	return m.FSType
}

// superSettings are the options that belong to the file system, in words that fsconfig(2) takes.
func superSettings(m Mount) []string {
	settings := slices.DeleteFunc(slices.Clone(m.Options), func(o string) bool {
		_, known := mountAttribute(o)
		return known
	})
	if m.Size != "" {
		settings = append(settings, "size="+m.Size)
	}
	return settings
}

// mountAttribute returns the bit of an option that belongs to the mount; those that only say what is so anyway have
// none.
func mountAttribute(option string) (bit uint64, known bool) {
	for _, a := range attributes() {
		if a.option == option {
			return a.bit, true
		}
	}
	return 0, slices.Contains([]string{"defaults", "rw", "suid", "dev", "exec", "relatime", "atime", "diratime", "symfollow"}, option)
}

// explained adds the kernel's own words about a file system context to an error: "tmpfs: Unknown parameter 'x'".
func explained(ctx int, err error) error {
	buf := make([]byte, 1024)
	n, readErr := unix.Read(ctx, buf)
	if readErr != nil || n <= 2 {
		return err
	}
	return fmt.Errorf("%w (%s)", err, strings.TrimSpace(string(buf[2:n])))
}

// build makes the file system, with the root that the node declares, and returns its descriptor; it is mounted nowhere
// yet, and is gone when the descriptor is closed.
func (g *mounting) build(n *Node) (fd int, err error) {
	ctx, err := g.configure(n)
	if err != nil {
		return -1, err
	}
	defer unix.Close(ctx)
	if err := unix.FsconfigCreate(ctx); err != nil {
		return -1, g.fail("make "+g.FSType, explained(ctx, err))
	}
	bits := 0
	for _, o := range g.Options {
		bit, _ := mountAttribute(o)
		bits |= int(bit)
	}
	fd, err = unix.Fsmount(ctx, unix.FSMOUNT_CLOEXEC, bits)
	if err != nil {
		return -1, g.fail("make mount of "+g.FSType, explained(ctx, err))
	}
	return fd, nil
}

// fail is a *fs.PathError about the mount point.
func (g *mounting) fail(op string, err error) error {
	return &fs.PathError{Op: "mount " + g.ID + ": " + op, Path: g.point.host(), Err: err}
}

// attach moves the built mount into place. A mount that somebody else has put there since the plan is a [*Conflict],
// also when it came in the very last moment.
func (f *folder) attach() error {
	g := f.mount
	under, err := g.openPoint()
	if err != nil {
		return err
	}
	defer unix.Close(under)
	at, err := mountOf(under, "")
	if err != nil {
		return g.fail("look", err)
	}
	if at.isRoot {
		return g.overtaken()
	}
	if err := unix.MoveMount(f.fd, "", under, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return g.fail("move into place", err)
	}
	g.attached = true
	if g.at, err = mountOf(f.fd, ""); err != nil {
		return g.fail("look", err)
	}
	info, err := g.at.info()
	if err != nil {
		return g.fail("look", err)
	}
	if !info.isOn(at) {
		return g.overtaken()
	}
	return nil
}

// openPoint opens the mount point again and refuses one that is not what the plan saw, unless it is a mount by now.
func (g *mounting) openPoint() (int, error) {
	up, err := g.point.up.open()
	if err != nil {
		return -1, err
	}
	fd, err := unix.Openat(up, g.point.name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, g.fail("open", err)
	}
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	r, errRef := mountOf(fd, "")
	if err == nil && errRef == nil && !r.isRoot && newFound(&st).identity != g.point.found.identity {
		err = errReplaced
	}
	if err := errors.Join(err, errRef); err != nil {
		unix.Close(fd)
		return -1, g.fail("open", err)
	}
	return fd, nil
}

func (g *mounting) overtaken() error {
	return &Conflict{Path: g.point.host(), Want: "no mount, as a moment ago", Got: "a mount that somebody made meanwhile"}
}

// detach takes the mount away again: one that is in place only while it is the topmost one there, empty and not in use.
func (f *folder) detach() error {
	g := f.mount
	if !g.attached {
		f.close()
		return nil
	}
	up, err := g.point.up.open()
	if err != nil {
		return err
	}
	top, err := mountOf(up, g.point.name)
	if err != nil {
		return g.fail("look", err)
	}
	if top != g.at {
		return g.fail("unmount", errReplaced)
	}
	if err := f.empty(); err != nil {
		return err
	}
	f.close() // else it is in use
	name := fmt.Sprintf("/proc/self/fd/%d/%s", up, g.point.name)
	if err := unix.Unmount(name, unix.UMOUNT_NOFOLLOW); err != nil {
		return g.fail("unmount", err)
	}
	g.attached = false
	return nil
}

// empty gives ENOTEMPTY for a directory that holds something.
func (f *folder) empty() error {
	dir, err := f.readable()
	if err != nil {
		return err
	}
	defer dir.Close()
	switch _, err := dir.Readdirnames(1); err {
	case io.EOF:
		return nil
	case nil:
		return f.fail("unmount", "", unix.ENOTEMPTY)
	default:
		return err
	}
}
