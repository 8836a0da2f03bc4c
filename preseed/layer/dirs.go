package layer

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// dirs are the directories of an unpack that are open. No entry is ever replaced, so a descriptor
// means the same directory as long as it is kept.
type dirs struct {
	root int
	fds  map[string]int
}

func newDirs(root string) (*dirs, error) {
	fd, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %q: %w", root, err)
	}
	return &dirs{root: fd, fds: map[string]int{}}, nil
}

// open returns a directory below the root, links resolved as if the root were the system's. The
// descriptor is good until the next call.
func (d *dirs) open(name string) (int, error) {
	if name == "" {
		return d.root, nil
	}
	if fd, ok := d.fds[name]; ok {
		return fd, nil
	}
	how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := unix.Openat2(d.root, name, &how)
	for errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) { // something was renamed meanwhile: openat2(2)
		fd, err = unix.Openat2(d.root, name, &how)
	}
	if err != nil {
		return -1, err
	}
	if len(d.fds) >= openDirs {
		d.forget()
	}
	d.fds[strings.Clone(name)] = fd
	return fd, nil
}

// make returns a directory that is made, with its parents, when it is not there: a layer may leave
// out the directories of its files.
func (d *dirs) make(name string) (int, error) {
	fd, err := d.open(name)
	if !errors.Is(err, unix.ENOENT) {
		return fd, unusual(err)
	}
	parent, base := path.Split(name)
	above, err := d.make(strings.TrimSuffix(parent, "/"))
	if err != nil {
		return -1, err
	}
	if err := unix.Mkdirat(above, base, 0o755); err != nil {
		return -1, replaced(err) // a link to nowhere
	}
	if err := unix.Fchmodat(above, base, 0o755, 0); err != nil {
		return -1, err
	}
	fd, err = d.open(name)
	return fd, unusual(err)
}

func unusual(err error) error {
	if err == nil {
		return nil
	}
	return replaced(err)
}

func (d *dirs) forget() {
	for _, fd := range d.fds {
		unix.Close(fd)
	}
	clear(d.fds)
}

func (d *dirs) close() {
	d.forget()
	unix.Close(d.root)
}
