package vm

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// archive writes a root file system in the form that the kernel unpacks at its start: cpio's newc
// (Documentation/driver-api/early-userspace/buffer-format.rst of the kernel).
type archive struct {
	w     io.Writer
	inode int
	have  map[string]bool // paths in the archive
	err   error           // the first that happened; nothing is written after it
}

func newArchive(w io.Writer) *archive { return &archive{w: w, have: map[string]bool{"/": true}} }

// put writes one entry of that mode (with its type, as of stat(2)), after its parents; the first entry of a path is the
// one that counts.
func (a *archive) put(name string, mode uint32, data []byte) {
	name = path.Clean("/" + name)
	if a.have[name] || a.err != nil {
		return
	}
	a.put(path.Dir(name), unix.S_IFDIR|0o755, nil)
	a.have[name] = true
	a.entry(name[1:], mode, data)
}

func (a *archive) entry(name string, mode uint32, data []byte) {
	a.inode++
	header := fmt.Sprintf("070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X",
		a.inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0)
	a.padded([]byte(header + name + "\x00"))
	a.padded(data)
}

// padded writes data up to a multiple of four bytes.
func (a *archive) padded(data []byte) {
	for _, part := range [][]byte{data, make([]byte, -len(data)&3)} {
		if a.err == nil {
			_, a.err = a.w.Write(part)
		}
	}
}

// end writes the entry that ends the archive.
func (a *archive) end() error {
	a.entry("TRAILER!!!", 0, nil)
	return a.err
}

// host puts a file, a link or a whole directory of the host at the same path, or below another directory. What a link
// leads to is put too.
func (a *archive) host(file, below string) {
	file = usr(file)
	err := filepath.WalkDir(file, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if below != "" {
			return a.one(name, filepath.Join(below, name[len(file):]), d)
		}
		return a.one(name, name, d)
	})
	if a.err == nil {
		a.err = err
	}
}

func (a *archive) one(file, name string, d fs.DirEntry) error {
	switch d.Type() {
	case fs.ModeDir:
		a.put(name, unix.S_IFDIR|0o755, nil)
	case fs.ModeSymlink:
		target, err := os.Readlink(file)
		if err != nil {
			return err
		}
		a.put(name, unix.S_IFLNK|0o777, []byte(target))
		if real, err := filepath.EvalSymlinks(file); err == nil && file == name {
			a.host(real, "") // a link that leads nowhere is as good here as there
		}
	case 0:
		info, err := d.Info()
		if err != nil {
			return err
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		a.put(name, unix.S_IFREG|uint32(info.Mode().Perm()), data)
	}
	return nil
}

// usr is a path of the host without the links of a merged /usr.
func usr(file string) string {
	for _, dir := range []string{"/bin/", "/sbin/", "/lib/", "/lib64/"} {
		if len(file) > len(dir) && file[:len(dir)] == dir {
			return "/usr" + file
		}
	}
	return file
}
