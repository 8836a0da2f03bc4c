package bundle

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// Tar is an archive as a list of its members, to be changed before it is
// written. Methods that change something return a changed copy and panic when
// there is no such member: a test that damages nothing proves nothing.
type Tar []Entry

// Entry is one member.
type Entry struct {
	Header tar.Header // Size is taken from Data
	Data   []byte
}

// Add appends a regular file.
func (t Tar) Add(name string, data []byte) Tar {
	return append(slices.Clone(t), file(name, data))
}

// Drop removes a member.
func (t Tar) Drop(name string) Tar {
	n := t.index(name)
	return slices.Delete(slices.Clone(t), n, n+1)
}

// Rename gives a member another name.
func (t Tar) Rename(name, to string) Tar {
	return t.with(name, func(e *Entry) { e.Header.Name = to })
}

// Replace gives a member other content.
func (t Tar) Replace(name string, data []byte) Tar {
	return t.with(name, func(e *Entry) { e.Data = data })
}

// FlipByte flips all bits of the byte in the middle of a member.
func (t Tar) FlipByte(name string) Tar {
	return t.with(name, func(e *Entry) {
		e.Data = bytes.Clone(e.Data)
		e.Data[len(e.Data)/2] ^= 0xff
	})
}

// Symlink makes a member a symbolic link to target.
func (t Tar) Symlink(name, target string) Tar { return t.link(name, target, tar.TypeSymlink) }

// Hardlink makes a member a hard link to target, the name of another member.
func (t Tar) Hardlink(name, target string) Tar { return t.link(name, target, tar.TypeLink) }

func (t Tar) link(name, target string, typeflag byte) Tar {
	return t.with(name, func(e *Entry) {
		e.Header.Typeflag, e.Header.Linkname, e.Data = typeflag, target, nil
	})
}

// Prefix puts prefix before the name of every member: "./" is what
// `tar -cf x.tar -C dir .` makes, "myimage/" what `tar -cf x.tar myimage` makes.
func (t Tar) Prefix(prefix string) Tar {
	t = slices.Clone(t)
	for i := range t {
		t[i].Header.Name = prefix + t[i].Header.Name
	}
	return append(Tar{{Header: tar.Header{Typeflag: tar.TypeDir, Name: prefix, Mode: 0o755}}}, t...)
}

// Get returns the content of a member.
func (t Tar) Get(name string) []byte { return t[t.index(name)].Data }

// Names returns the names of all members in their order.
func (t Tar) Names() []string {
	var names []string
	for _, e := range t {
		names = append(names, e.Header.Name)
	}
	return names
}

// Write writes the archive.
func (t Tar) Write(w io.Writer) error {
	tw := tar.NewWriter(w)
	for _, e := range t {
		e.Header.Size = int64(len(e.Data))
		if err := tw.WriteHeader(&e.Header); err != nil {
			return fmt.Errorf("write header of %q: %w", e.Header.Name, err)
		}
		if _, err := tw.Write(e.Data); err != nil {
			return fmt.Errorf("write %q: %w", e.Header.Name, err)
		}
	}
	return tw.Close()
}

// Bytes returns the archive as written. It panics when the tar format cannot
// hold it.
func (t Tar) Bytes() []byte {
	var b bytes.Buffer
	if err := t.Write(&b); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// Unpack writes the regular files of the archive below dir.
func (t Tar) Unpack(dir string) error {
	for _, e := range t {
		path := filepath.Join(dir, filepath.FromSlash(e.Header.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if e.Header.Typeflag != tar.TypeReg {
			continue
		}
		if err := os.WriteFile(path, e.Data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (t Tar) with(name string, change func(*Entry)) Tar {
	t = slices.Clone(t)
	change(&t[t.index(name)])
	return t
}

func (t Tar) index(name string) int {
	n := slices.IndexFunc(t, func(e Entry) bool { return e.Header.Name == name })
	if n < 0 {
		panic(fmt.Sprintf("bundle: no member %q in %q", name, t.Names()))
	}
	return n
}

func file(name string, data []byte) Entry {
	return Entry{Header: tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}, Data: data}
}
