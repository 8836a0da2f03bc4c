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
	file, temp, err := createTemp(dir)
	if err != nil {
		return false, err
	}
	defer file.Close() // and only then give the lock back
	if err := fill(file, data, mode); err != nil {
		unix.Unlinkat(at, temp, 0)
		return false, err
	}
	if err := unix.Renameat(at, temp, at, name); err != nil {
		unix.Unlinkat(at, temp, 0)
		return false, &fs.PathError{Op: "rename", Path: filepath.Join(dir.Name(), name), Err: err}
	}
	return true, dir.Sync()
}

// createTemp makes a temporary file and locks it (flock(2)): the lock goes with its writer, so whoever gets it knows
// that the writer is dead. A file that was swept before it was locked is made again.
func createTemp(dir *os.File) (file *os.File, name string, err error) {
	for {
		name = tempPrefix + rand.Text() + tempSuffix
		path := filepath.Join(dir.Name(), name)
		fd, err := unix.Openat(int(dir.Fd()), name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return nil, "", &fs.PathError{Op: "create", Path: path, Err: err}
		}
		file = os.NewFile(uintptr(fd), path)
		var st unix.Stat_t
		if err = unix.Flock(fd, unix.LOCK_EX); err == nil {
			err = unix.Fstat(fd, &st)
		}
		if err == nil && st.Nlink > 0 {
			return file, name, nil
		}
		file.Close()
		if err != nil && err != unix.EINTR {
			return nil, "", &fs.PathError{Op: "lock", Path: path, Err: err}
		}
	}
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

// fill writes a new file and makes it durable.
func fill(file *os.File, data []byte, mode Mode) error {
	if _, err := file.Write(data); err != nil {
		return err
	}
	if err := file.Chown(os.Geteuid(), os.Getegid()); err != nil {
		return err
	}
	if err := file.Chmod(os.FileMode(mode)); err != nil {
		return err
	}
	return file.Sync()
}

// sweep removes temporary files that a killed writer left in the folder.
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
		if err := sweepTemp(int(dir.Fd()), name); err != nil {
			return f.fail("remove", name, err)
		}
	}
	return nil
}

// sweepTemp removes a temporary file if it has no writer any more. What cannot be opened or is no file is none of ours.
func sweepTemp(dir int, name string) error {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || kindOf(st.Mode) != KindFile {
		return err
	}
	if unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) != nil {
		return nil
	}
	if err := unix.Unlinkat(dir, name, 0); err != nil && err != unix.ENOENT {
		return err
	}
	return nil
}
