package layer_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/pkg/archive"
	"golang.org/x/sys/unix"

	"seedbed/preseed/layer"
)

func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: a layer has owners and whiteouts")
	}
}

func dir(name string) tar.Header { return tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755} }

func file(name string) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: 5}
}

func link(kind byte, name, target string) tar.Header {
	return tar.Header{Typeflag: kind, Name: name, Linkname: target, Mode: 0o777}
}

func pack(t testing.TB, headers ...tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for n, h := range headers {
		if h.ModTime.IsZero() {
			h.ModTime = time.Unix(1_000_000_000+int64(n), 123456789)
		}
		h.Format = tar.FormatPAX
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(bytes.Repeat([]byte("x"), int(h.Size))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// describe lists a tree with all that a layer sets.
func describe(t testing.TB, root string) string {
	t.Helper()
	var lines []string
	inodes := map[uint64]string{}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		var s unix.Stat_t
		if err := unix.Lstat(path, &s); err != nil {
			return err
		}
		name := path[len(root)+1:]
		line := fmt.Sprintf("%s %o %d:%d %d %d.%d %x", name, s.Mode, s.Uid, s.Gid, s.Size, s.Mtim.Sec, s.Mtim.Nsec, s.Rdev)
		switch s.Mode & unix.S_IFMT {
		case unix.S_IFDIR:
			line = strings.Replace(line, fmt.Sprintf(" %d ", s.Size), " ", 1)
		case unix.S_IFLNK:
			target, _ := os.Readlink(path)
			line += " -> " + target
		case unix.S_IFCHR:
			line = fmt.Sprintf("%s whiteout %d:%d %x", name, s.Uid, s.Gid, s.Rdev)
		case unix.S_IFREG:
			data, _ := os.ReadFile(path)
			line += fmt.Sprintf(" %q", data[:min(len(data), 10)])
		}
		if s.Nlink > 1 && s.Mode&unix.S_IFMT == unix.S_IFREG {
			if inodes[s.Ino] == "" {
				inodes[s.Ino] = name
			}
			line += " = " + inodes[s.Ino]
		}
		for _, key := range []string{"trusted.overlay.opaque", "user.test", "security.capability"} {
			value := make([]byte, 64)
			if n, err := unix.Lgetxattr(path, key, value); err == nil {
				line += fmt.Sprintf(" %s=%x", key, value[:n])
			}
		}
		lines = append(lines, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// usual are layers that have to come out as containerd unpacks them.
func usual() map[string][]tar.Header {
	owned := file("srv/owned")
	owned.Uid, owned.Gid, owned.Mode = 1000, 2000, 0o6755
	large := file("large")
	large.Size = 1<<20 + 7
	exact := file("exact")
	exact.Size = 512 << 10
	old := file("old")
	old.ModTime = time.Unix(-5, 0)
	attributes := file("attributes")
	capability := string([]byte{1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	attributes.PAXRecords = map[string]string{"SCHILY.xattr.user.test": "1", "SCHILY.xattr.security.capability": capability, "SCHILY.xattr.trusted.overlay.opaque": "y"}
	sticky := dir("tmp")
	sticky.Mode = 0o1777
	gone := file("etc/.wh.gone")
	gone.Size, gone.Uid = 0, 3
	opaque := file("opt/.wh..wh..opq")
	opaque.Size = 0
	empty := file("empty")
	empty.Size = 0
	return map[string][]tar.Header{
		"plain":            {dir("etc"), file("etc/a"), owned, large, exact, old, attributes, sticky, empty},
		"parents left out": {file("a/b/c/d"), file("a/b/e")},
		"directory after":  {file("a/b"), dir("a"), dir("a")},
		"whiteouts":        {dir("etc"), gone, dir("opt"), opaque, file("opt/new")},
		"links":            {file("a/b"), link(tar.TypeLink, "c/d", "a/b"), link(tar.TypeSymlink, "e", "a"), link(tar.TypeLink, "f", "./e/../a/b")},
		"through a link":   {dir("usr/lib"), link(tar.TypeSymlink, "lib", "usr/lib"), file("lib/x"), link(tar.TypeLink, "y", "lib/x")},
		"absolute link":    {dir("usr/lib"), link(tar.TypeSymlink, "lib", "/usr/lib"), file("lib/x")},
		"odd names":        {file("./a//b/../c"), file("/abs/x"), dir("./"), dir("/")},
		"above":            {file("../../escaped"), file("a/../../../b")},
		"link to nowhere":  {link(tar.TypeSymlink, "x", "/etc/nowhere")},
		"many directories": many(300),
		"nothing":          {},
	}
}

func many(n int) (all []tar.Header) {
	for i := range n {
		all = append(all, dir(fmt.Sprintf("d%d", i)), file(fmt.Sprintf("d%d/f", i)))
	}
	for i := range n {
		all = append(all, file(fmt.Sprintf("d%d/g", i)), link(tar.TypeLink, fmt.Sprintf("d%d/h", i), fmt.Sprintf("d%d/f", (i+150)%n)))
	}
	return all
}

// TestUnpackAsContainerdDoes holds the result against containerd's own.
func TestUnpackAsContainerdDoes(t *testing.T) {
	needRoot(t)
	for name, headers := range usual() {
		t.Run(name, func(t *testing.T) {
			defer syscall.Umask(syscall.Umask(0o077))
			data := pack(t, headers...)
			want, got := t.TempDir(), t.TempDir()
			if _, err := archive.Apply(t.Context(), want, bytes.NewReader(data), archive.WithConvertWhiteout(archive.OverlayConvertWhiteout)); err != nil {
				t.Fatal(err)
			}
			if err := layer.Unpack(t.Context(), got, bytes.NewReader(data)); err != nil {
				t.Fatal(err)
			}
			normal := implicit(headers)
			if w, g := normal(describe(t, want)), normal(describe(t, got)); w != g {
				t.Errorf("containerd makes\n%s\nhere it is\n%s", w, g)
			}
		})
	}
}

// implicit leaves out the time of directories that the layer does not name.
func implicit(headers []tar.Header) func(string) string {
	named := map[string]bool{}
	for _, h := range headers {
		if h.Typeflag == tar.TypeDir {
			named[strings.Trim(filepath.Clean("/"+h.Name), "/")] = true
		}
	}
	return func(tree string) string {
		lines := strings.Split(tree, "\n")
		for n, line := range lines {
			fields := strings.Fields(line)
			if len(fields) > 3 && strings.HasPrefix(fields[1], "4") && !named[fields[0]] {
				lines[n] = strings.Join(fields[:3], " ")
			}
		}
		return strings.Join(lines, "\n")
	}
}

// TestUnusual leaves to containerd what is out of the ordinary.
func TestUnusual(t *testing.T) {
	needRoot(t)
	attributes := link(tar.TypeSymlink, "a", "b")
	attributes.PAXRecords = map[string]string{"SCHILY.xattr.user.test": "1"}
	for name, headers := range map[string][]tar.Header{
		"device":             {{Typeflag: tar.TypeChar, Name: "null", Devmajor: 1, Devminor: 3}},
		"FIFO":               {{Typeflag: tar.TypeFifo, Name: "fifo"}},
		"file twice":         {file("a"), file("a")},
		"link over file":     {file("a"), link(tar.TypeSymlink, "a", "b")},
		"directory for link": {dir("b"), link(tar.TypeSymlink, "a", "b"), dir("a")},
		"file as directory":  {file("a"), file("a/b")},
		"parent to nowhere":  {link(tar.TypeSymlink, "a", "/nowhere"), file("a/b")},
		"links in a circle":  {link(tar.TypeSymlink, "a", "b"), link(tar.TypeSymlink, "b", "a"), file("a/c")},
		"hard link nowhere":  {link(tar.TypeLink, "a", "b")},
		"whiteout of parent": {file("a/.wh...")},
		"whiteout of file":   {file("a"), file(".wh.a")},
		"link's attributes":  {attributes},
	} {
		t.Run(name, func(t *testing.T) {
			err := layer.Unpack(t.Context(), t.TempDir(), bytes.NewReader(pack(t, headers...)))
			if !errors.Is(err, layer.ErrUnusual) {
				t.Errorf("error %v, want ErrUnusual", err)
			}
		})
	}
}

// TestUnpackStaysInside follows no link out of the directory, by whatever way a tar tries.
func TestUnpackStaysInside(t *testing.T) {
	needRoot(t)
	base := t.TempDir()
	outside, inside := filepath.Join(base, "outside"), filepath.Join(base, "inside")
	for _, headers := range [][]tar.Header{
		{link(tar.TypeSymlink, "a", outside), file("a/x")},
		{link(tar.TypeSymlink, "a", "../outside"), file("a/x")},
		{link(tar.TypeSymlink, "a", "../outside"), dir("a")},
		{link(tar.TypeSymlink, "a", "../outside/secret"), file("a")},
		{link(tar.TypeLink, "a", "../outside/secret")},
		{link(tar.TypeSymlink, "a", "../outside"), link(tar.TypeLink, "b", "a/secret")},
		{link(tar.TypeSymlink, "a", "../outside/secret"), link(tar.TypeLink, "b", "a")},
		{link(tar.TypeSymlink, "a", "../outside"), file("a/.wh.secret")},
		{link(tar.TypeSymlink, "a", "../outside"), file("a/.wh..wh..opq")},
		{file("../outside/x")},
		{dir("../outside")},
		{file("/../../outside/secret")},
		{link(tar.TypeSymlink, "a", "/proc/self/cwd"), file("a/x")},
	} {
		for _, d := range []string{outside, inside} {
			if err := errors.Join(os.RemoveAll(d), os.Mkdir(d, 0o755)); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o600); err != nil {
			t.Fatal(err)
		}
		before := describe(t, outside)
		_ = layer.Unpack(t.Context(), inside, bytes.NewReader(pack(t, headers...)))
		if after := describe(t, outside); after != before {
			t.Errorf("%s -> %s: outside is\n%s\nand was\n%s", headers[0].Name, headers[0].Linkname, after, before)
		}
	}
}

// TestUnpackEnds says of a tar that is cut off that it is, and stops when it is told to.
func TestUnpackEnds(t *testing.T) {
	needRoot(t)
	large := file("large")
	large.Size = 1 << 20
	data := pack(t, large)
	for _, size := range []int{100, 512, 4096, 300 << 10, 1 << 20} {
		if err := layer.Unpack(t.Context(), t.TempDir(), bytes.NewReader(data[:size])); err == nil {
			t.Errorf("a tar cut off at byte %d was unpacked", size)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := layer.Unpack(ctx, t.TempDir(), bytes.NewReader(data)); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want the context's", err)
	}
}
