package units

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// tree is a root directory in which paths mean what they mean to the system that boots from it: they are absolute, and so
// are the targets of links (chroot(2)). os.Root alone refuses an absolute link.
type tree struct{ root *os.Root }

// openTree opens a root, and returns with it how to close it.
func openTree(root string) (*tree, func() error, error) {
	at, err := os.OpenRoot(root)
	if err != nil {
		return nil, nil, err
	}
	return &tree{at}, at.Close, nil
}

// maxLinks is how many links one path may lead through, as for the kernel (path_resolution(7)).
const maxLinks = 40

// maxUnit bounds what is read of a unit or drop-in, in bytes.
const maxUnit = 1 << 20

// in returns an absolute path of the root in the form that os.Root takes.
func in(absolute string) string { return cmp.Or(strings.TrimPrefix(path.Clean(absolute), "/"), ".") }

// resolve returns where name leads to in the root, with no link left on the way or at its end. What is not there yet
// stays as it is; a link to something that is not there is an error.
func (t *tree) resolve(name string) (string, error) {
	at, rest := "/", strings.Split(name, "/")
	ofLink := 0 // how many parts of rest a link has named
	for links := 0; len(rest) > 0; {
		part := rest[0]
		rest, ofLink = rest[1:], ofLink-1
		next := path.Join(at, part) // . and .. too: at has no links
		target, err := t.root.Readlink(in(next))
		switch {
		case err == nil:
			if links++; links > maxLinks {
				return "", &fs.PathError{Op: "resolve", Path: name, Err: unix.ELOOP}
			}
			parts := strings.Split(target, "/")
			rest, ofLink = append(parts, rest...), len(parts)
			if path.IsAbs(target) {
				at = "/"
			}
		case errors.Is(err, fs.ErrNotExist) && ofLink >= 0:
			return "", fmt.Errorf("resolve %s: a link leads to %s, which is not in the root: %w", name, next, fs.ErrNotExist)
		case errors.Is(err, fs.ErrNotExist):
			return path.Join(append([]string{next}, rest...)...), nil
		case errors.Is(err, unix.EINVAL): // it is no link
			at = next
		default:
			return "", err
		}
	}
	return at, nil
}

// read returns what a file holds. A link to /dev/null, which masks a unit, holds nothing.
func (t *tree) read(file string) ([]byte, error) {
	if target, err := t.root.Readlink(in(file)); err == nil && target == os.DevNull {
		return nil, nil
	}
	file, err := t.resolve(file)
	if err != nil {
		return nil, err
	}
	f, err := t.root.OpenFile(in(file), os.O_RDONLY|unix.O_NONBLOCK, 0) // a FIFO that nobody writes into is empty
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxUnit))
}

// list returns the names in a directory, sorted.
func (t *tree) list(dir string) ([]string, error) {
	dir, err := t.resolve(dir)
	if err != nil {
		return nil, err
	}
	entries, err := fs.ReadDir(t.root.FS(), in(dir))
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}
