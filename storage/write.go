package storage

import (
	"crypto/rand"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	manifestMode Mode = 0o644
	tempPrefix        = ".seedbed-"
	tempSuffix        = ".tmp"
)

// encode names this writing of the manifest and returns its text. More than its readers accept is an error.
func (m *Manifest) encode() ([]byte, error) {
	m.Generation = rand.Text()
	data, err := m.text()
	if err == nil && len(data) > maxManifest {
		err = fmt.Errorf("write manifest: %d nodes take %d bytes: at most %d can be read back", len(m.Nodes), len(data), maxManifest)
	}
	return data, err
}

// WriteFile replaces the file at path, on the host, by data, atomically and durably. Its directory has to be there. Errors
// are *fs.PathError.
func WriteFile(path string, data []byte, mode Mode) error {
	w, err := newWalker(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer w.Close()
	if w.root.absent {
		return w.root.fail("open", "", unix.ENOENT)
	}
	_, err = w.root.writeFile(filepath.Base(path), data, mode)
	return err
}

// WriteFileAt is [WriteFile] for a name in an open directory, which it does not leave whatever its path leads to by now.
func WriteFileAt(dir *os.File, name string, data []byte, mode Mode) error {
	_, err := writeAt(dir, name, data, mode)
	return err
}

func (f *folder) writeFile(name string, data []byte, mode Mode) (replaced bool, err error) {
	dir, err := f.readable()
	if err != nil {
		return false, err
	}
	defer dir.Close()
	return writeAt(dir, name, data, mode)
}

// writeAt is the one atomic write: a temporary file in the same directory with a random name, owned by the caller,
// chmod, fsync, rename, fsync of the directory. It reports whether the new file is in place, which it may be although
// the last step went wrong.
func writeAt(dir *os.File, name string, data []byte, mode Mode) (replaced bool, err error) {
	at := int(dir.Fd())
	temp := tempPrefix + rand.Text() + tempSuffix
	path := filepath.Join(dir.Name(), temp)
	fd, err := unix.Openat(at, temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return false, &fs.PathError{Op: "create", Path: path, Err: err}
	}
	if err := fill(os.NewFile(uintptr(fd), path), data, mode); err != nil {
		unix.Unlinkat(at, temp, 0)
		return false, err
	}
	if err := unix.Renameat(at, temp, at, name); err != nil {
		unix.Unlinkat(at, temp, 0)
		return false, &fs.PathError{Op: "rename", Path: filepath.Join(dir.Name(), name), Err: err}
	}
	return true, dir.Sync()
}

// readable opens the folder for reading its names and for fsync.
func (f *folder) readable() (*os.File, error) {
	above, err := f.open()
	if err != nil {
		return nil, err
	}
	fd, err := unix.Openat(above, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, f.fail("open", "", err)
	}
	return os.NewFile(uintptr(fd), f.host()), nil
}

// fill writes a new file, makes it durable and closes it.
func fill(file *os.File, data []byte, mode Mode) error {
	defer file.Close()
	if _, err := file.Write(data); err != nil {
		return err
	}
	if err := file.Chown(os.Geteuid(), os.Getegid()); err != nil {
		return err
	}
	if err := file.Chmod(os.FileMode(mode)); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	return file.Close()
}

// sweep removes temporary files that a killed run left in the folder. The caller holds the lock, so no other run is
// writing one.
func (f *folder) sweep() error {
	if f.absent {
		return nil
	}
	dir, err := f.readable()
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !strings.HasPrefix(name, tempPrefix) || !strings.HasSuffix(name, tempSuffix) {
			continue
		}
		if err := unix.Unlinkat(int(dir.Fd()), name, 0); err != nil {
			return f.fail("remove", name, err)
		}
	}
	return nil
}
