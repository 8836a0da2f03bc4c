package storage

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	manifestMode Mode = 0o644
	tempPrefix        = ".seedbed-"
	tempSuffix        = ".tmp"
)

// encode names this writing of the manifest and returns its text, with one node to a line so that grep and diff are of
// use. More than its readers accept is an error.
func (m *Manifest) encode() ([]byte, error) {
	m.Generation = rand.Text()
	data, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	// Quotes are escaped inside of strings, so this is only found where a node or a mount begins.
	data = append(bytes.ReplaceAll(data, []byte(`{"id":`), []byte("\n {\"id\":")), '\n')
	if len(data) > maxManifest {
		return nil, fmt.Errorf("write manifest: %d nodes take %d bytes: at most %d can be read back", len(m.Nodes), len(data), maxManifest)
	}
	return data, nil
}

// writeFile is the one atomic write: a temporary file in the same directory with a random name, owned by the caller,
// chmod, fsync, rename, fsync of the directory.
func (f *folder) writeFile(name string, data []byte, mode Mode) error {
	above, err := f.open()
	if err != nil {
		return err
	}
	dir, err := unix.Openat(above, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return f.fail("open", "", err)
	}
	defer unix.Close(dir)
	temp := tempPrefix + rand.Text() + tempSuffix
	fd, err := unix.Openat(dir, temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return f.fail("create", temp, err)
	}
	if err := fill(os.NewFile(uintptr(fd), f.hostOf(temp)), data, mode); err != nil {
		unix.Unlinkat(dir, temp, 0)
		return err
	}
	if err := unix.Renameat(dir, temp, dir, name); err != nil {
		unix.Unlinkat(dir, temp, 0)
		return f.fail("rename", name, err)
	}
	if err := unix.Fsync(dir); err != nil {
		return f.fail("fsync", "", err)
	}
	return nil
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

// sweep removes temporary files that a killed run left in the folder, and returns how many. The caller holds the lock,
// so no other run is writing one.
func (f *folder) sweep() (int, error) {
	if f.absent {
		return 0, nil
	}
	above, err := f.open()
	if err != nil {
		return 0, err
	}
	fd, err := unix.Openat(above, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, f.fail("open", "", err)
	}
	dir := os.NewFile(uintptr(fd), f.host())
	defer dir.Close()
	swept := 0
	for {
		names, err := dir.Readdirnames(128)
		for _, name := range names {
			if !strings.HasPrefix(name, tempPrefix) || !strings.HasSuffix(name, tempSuffix) {
				continue
			}
			if err := unix.Unlinkat(fd, name, 0); err != nil {
				return swept, f.fail("remove", name, err)
			}
			swept++
		}
		if err == io.EOF {
			return swept, nil
		}
		if err != nil {
			return swept, err
		}
	}
}
