// Package layer unpacks one layer of an image into the upper directory of an overlay, as containerd's
// archive.Apply does it, with a third of the system calls: names are resolved by the kernel below the
// directory, directories stay open while files are put into them, and a file is worked on by its
// descriptor. What is out of the ordinary it leaves to containerd: see [ErrUnusual].
package layer

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrUnusual says that the layer has what this package does not unpack: devices, FIFOs, sparse files,
// entries that replace others of the same layer, extended attributes of links, parents that are links
// to nowhere. The directory holds a part of the layer then.
var ErrUnusual = errors.New("unusual layer")

// Sizes of what is kept during an unpack.
const (
	bufferSize = 256 << 10 // bytes that are written to a file at a time
	openDirs   = 128       // directories that stay open
)

// The names with which a layer takes away what is below it. Source: OCI image-spec, layer.md.
const (
	whiteoutPrefix = ".wh."
	opaqueMark     = ".wh..wh..opq"
)

// xattrPrefix begins the PAX records that are extended attributes.
const xattrPrefix = "SCHILY.xattr."

type unpacker struct {
	dirs   *dirs
	reader *tar.Reader
	buffer []byte
	times  []entry // directories, whose times are set when nothing more is put into them
}

// entry is one entry of the tar: its header, and where it goes.
type entry struct {
	*tar.Header
	parent string // clean, relative to the directory; "" is the directory itself
	base   string
}

// Unpack unpacks the tar in r into dir, which belongs to nobody else meanwhile and is empty. Nothing
// outside dir is touched whatever the tar's names and links are. r is read to the tar's end mark. It
// needs root.
func Unpack(ctx context.Context, dir string, r io.Reader) error {
	open, err := newDirs(dir)
	if err != nil {
		return err
	}
	defer open.close()
	u := &unpacker{dirs: open, reader: tar.NewReader(r), buffer: make([]byte, bufferSize)}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		h, err := u.reader.Next()
		if errors.Is(err, io.EOF) {
			return u.setTimes()
		}
		if err != nil {
			return err
		}
		if err := u.add(h); err != nil {
			return fmt.Errorf("unpack %q: %w", h.Name, err)
		}
	}
}

// split makes a name that leads nowhere but below the directory.
func split(name string) (parent, base string) {
	clean := path.Clean("/" + name)[1:]
	parent, base = path.Split(clean)
	return strings.TrimSuffix(parent, "/"), base
}

func (u *unpacker) add(h *tar.Header) error {
	e := entry{Header: h}
	e.parent, e.base = split(h.Name)
	if h.Typeflag == tar.TypeXGlobalHeader || e.base == "" { // the directory itself stays as it is
		return nil
	}
	parent, err := u.dirs.make(e.parent)
	if err != nil {
		return err
	}
	if strings.HasPrefix(e.base, whiteoutPrefix) {
		return e.whiteout(parent)
	}
	switch h.Typeflag {
	case tar.TypeDir:
		u.times = append(u.times, e)
		return e.directory(parent)
	case tar.TypeReg:
		return u.file(e, parent)
	case tar.TypeSymlink:
		return e.symlink(parent)
	case tar.TypeLink:
		return u.link(e)
	}
	return fmt.Errorf("type %q: %w", h.Typeflag, ErrUnusual)
}

// whiteout makes the overlay's form of a whiteout. Source: Linux, Documentation/filesystems/overlayfs.rst.
func (e entry) whiteout(parent int) error {
	if e.base == opaqueMark {
		return unix.Fsetxattr(parent, "trusted.overlay.opaque", []byte("y"), 0)
	}
	name := e.base[len(whiteoutPrefix):]
	if name == "" || name == "." || name == ".." || strings.HasPrefix(name, whiteoutPrefix) {
		return fmt.Errorf("a whiteout of nothing: %w", ErrUnusual)
	}
	if err := unix.Mknodat(parent, name, unix.S_IFCHR, 0); err != nil {
		return replaced(err)
	}
	return unix.Fchownat(parent, name, e.Uid, e.Gid, unix.AT_SYMLINK_NOFOLLOW)
}

func (e entry) directory(parent int) error {
	if err := unix.Mkdirat(parent, e.base, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	fd, err := unix.Openat(parent, e.base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return replaced(err)
	}
	defer unix.Close(fd)
	return e.setOwner(fd)
}

func (u *unpacker) file(e entry, parent int) error {
	fd, err := unix.Openat(parent, e.base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return replaced(err)
	}
	err = u.fill(fd)
	if err == nil {
		err = e.setOwner(fd)
	}
	if closeErr := unix.Close(fd); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return e.setTimes(parent)
}

// fill writes the data of the tar's current entry.
func (u *unpacker) fill(fd int) error {
	for {
		n, err := io.ReadFull(u.reader, u.buffer)
		for data := u.buffer[:n]; len(data) > 0; {
			written, err := unix.Write(fd, data)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil {
				return fmt.Errorf("write: %w", err)
			}
			data = data[written:]
		}
		switch {
		case errors.Is(err, io.EOF), n < len(u.buffer) && errors.Is(err, io.ErrUnexpectedEOF) && u.atEnd():
			return nil
		case err != nil:
			return err
		}
	}
}

// atEnd tells the end of the entry from that of a tar which is cut off.
func (u *unpacker) atEnd() bool {
	_, err := u.reader.Read(u.buffer[:1])
	return errors.Is(err, io.EOF)
}

func (e entry) symlink(parent int) error {
	if e.hasAttributes() {
		return fmt.Errorf("extended attributes of a link: %w", ErrUnusual)
	}
	if err := unix.Symlinkat(e.Linkname, parent, e.base); err != nil {
		return replaced(err)
	}
	if err := unix.Fchownat(parent, e.base, e.Uid, e.Gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	return e.setTimes(parent)
}

// link makes a hard link to an earlier file of the layer, of which it sets the attributes again.
func (u *unpacker) link(e entry) error {
	dir, base := split(e.Linkname)
	target, err := u.dirs.open(dir)
	if err != nil {
		return fmt.Errorf("link to %q: %w: %w", e.Linkname, ErrUnusual, err)
	}
	fd, err := unix.Openat(target, base, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("link to %q: %w: %w", e.Linkname, ErrUnusual, err)
	}
	defer unix.Close(fd)
	// A descriptor of the parent from before may have been closed to make room.
	parent, err := u.dirs.open(e.parent)
	if err != nil {
		return err
	}
	if err := unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), parent, e.base, unix.AT_SYMLINK_FOLLOW); err != nil {
		return replaced(err)
	}
	if err := e.setOwner(fd); err != nil {
		return err
	}
	return e.setTimes(parent)
}

func (e entry) hasAttributes() bool {
	for key := range e.PAXRecords {
		if strings.HasPrefix(key, xattrPrefix) {
			return true
		}
	}
	return false
}

// setOwner sets the owner, the extended attributes and the mode, in this order: each takes away from
// those after it. Trusted attributes are the system's, and none that a layer may set.
func (e entry) setOwner(fd int) error {
	if err := unix.Fchown(fd, e.Uid, e.Gid); err != nil {
		return fmt.Errorf("chown to %d:%d: %w", e.Uid, e.Gid, err)
	}
	for key, value := range e.PAXRecords {
		name, ok := strings.CutPrefix(key, xattrPrefix)
		if !ok || strings.HasPrefix(name, "trusted.") {
			continue
		}
		if err := unix.Fsetxattr(fd, name, []byte(value), 0); err != nil && !errors.Is(err, unix.ENOTSUP) {
			return fmt.Errorf("set attribute %q: %w", name, err)
		}
	}
	return unix.Fchmod(fd, uint32(e.Mode&0o7777))
}

func (e entry) setTimes(parent int) error {
	accessed := e.AccessTime
	if accessed.Before(e.ModTime) {
		accessed = e.ModTime
	}
	times := []unix.Timespec{timespec(accessed), timespec(e.ModTime)}
	return unix.UtimesNanoAt(parent, e.base, times, unix.AT_SYMLINK_NOFOLLOW)
}

// timespec takes a time that a file cannot have for the epoch, as containerd does.
func timespec(t time.Time) unix.Timespec {
	if t.Before(time.Unix(0, 0)) || t.After(time.Unix(0, 1<<63-1)) {
		return unix.Timespec{}
	}
	return unix.NsecToTimespec(t.UnixNano())
}

// setTimes sets the times of the directories.
func (u *unpacker) setTimes() error {
	for _, e := range u.times {
		parent, err := u.dirs.open(e.parent)
		if err == nil {
			err = e.setTimes(parent)
		}
		if err != nil {
			return fmt.Errorf("set times of %q: %w", e.Name, err)
		}
	}
	return nil
}

// replaced knows the errors that mean that something else is there already.
func replaced(err error) error {
	for _, there := range []unix.Errno{unix.EEXIST, unix.ENOTDIR, unix.ELOOP} {
		if errors.Is(err, there) {
			return fmt.Errorf("an entry in the place of another: %w: %w", ErrUnusual, err)
		}
	}
	return err
}
