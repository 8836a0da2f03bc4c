package preseed

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/containerd/containerd/v2/pkg/identifiers"

	"seedbed/preseed/archive"
)

// found is one entry of a preseed directory: a bundle to read, something to skip, or something
// that is wrong before it is read.
type found struct {
	path      string
	namespace string
	reader    io.Reader
	skip      string // why it is no bundle
	err       *Error
}

// finder collects what the sources hold.
type finder struct {
	namespace    string // for bundles that lie in no namespace directory
	anyNamespace bool   // bundles need no namespace: they are only looked at
	entries      []found
}

// find returns every entry of the sources in lexical order of namespace and name. It fails when a
// source does not exist or cannot be read, and only then.
func find(sources []Source, o Options, anyNamespace bool) ([]found, error) {
	var all []found
	for _, s := range sources {
		f := finder{namespace: cmp.Or(s.Namespace, o.Namespace), anyNamespace: anyNamespace}
		err := f.source(s)
		if errors.Is(err, fs.ErrNotExist) && o.IgnoreMissing {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, f.entries...)
	}
	slices.SortStableFunc(all, func(a, b found) int {
		return cmp.Or(strings.Compare(a.namespace, b.namespace),
			strings.Compare(filepath.Base(a.path), filepath.Base(b.path)), strings.Compare(a.path, b.path))
	})
	return slices.CompactFunc(all, func(a, b found) bool {
		return a.reader == nil && b.reader == nil && a.path == b.path && a.namespace == b.namespace
	}), nil
}

func (f *finder) source(s Source) error {
	if s.Reader != nil {
		f.bundle(found{path: s.Path, namespace: f.namespace, reader: s.Reader})
		return nil
	}
	info, err := os.Stat(s.Path)
	if err != nil {
		return fmt.Errorf("read bundles: %w", err)
	}
	if !info.IsDir() || isLayout(s.Path) {
		f.bundle(found{path: s.Path, namespace: f.namespace})
		return nil
	}
	return f.preseedDir(s.Path)
}

// preseedDir takes each sub-directory for a namespace. Only names that containerd accepts are
// entered; what a file system puts there by itself is passed over.
func (f *finder) preseedDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read preseed directory: %w", err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if e.Name() == "lost+found" || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		info, err := os.Stat(path)
		switch {
		case err != nil:
			f.unreadable(path, f.namespace, e, err)
		case !info.IsDir() || isLayout(path):
			f.outside(path, info)
		default:
			f.namespaceDir(path, e.Name())
		}
	}
	return nil
}

// outside handles what lies beside the namespace directories.
func (f *finder) outside(path string, info fs.FileInfo) {
	reason := clutter(path, info)
	switch {
	case reason != "":
		f.entries = append(f.entries, found{path: path, skip: reason})
	case f.namespace != "" || f.anyNamespace:
		f.bundle(found{path: path, namespace: f.namespace})
	default:
		f.entries = append(f.entries, found{path: path, err: &Error{
			Code: CodeNamespace, Found: "it lies in no namespace directory", Expected: "a directory named after a containerd namespace around it",
			Advice: "move it into one (k8s.io for Kubernetes), or name a namespace with -n",
		}})
	}
}

func (f *finder) namespaceDir(dir, namespace string) {
	if err := identifiers.Validate(namespace); err != nil {
		f.entries = append(f.entries, found{path: dir, err: badNamespace(namespace)})
		return
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		f.entries = append(f.entries, found{path: dir, err: errorOf(err)})
		return
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		info, err := os.Stat(path)
		if err != nil {
			f.unreadable(path, namespace, e, err)
			continue
		}
		f.entries = append(f.entries, found{path: path, namespace: namespace, skip: clutter(path, info)})
	}
}

// unreadable adds an entry that stat refuses: a dangling link, as a rule. Under a bundle's name it
// is a failure, for somebody expects an image from it; under any other it is clutter.
func (f *finder) unreadable(path, namespace string, e fs.DirEntry, err error) {
	if !namedLikeBundle(path) {
		f.entries = append(f.entries, found{path: path, namespace: namespace, skip: "is not named like a bundle"})
		return
	}
	bad := errorOf(err)
	if e.Type()&fs.ModeSymlink != 0 && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ELOOP)) {
		target, _ := os.Readlink(path)
		bad = &Error{
			Code: archive.CodeNotAnImage, Found: "a link to " + quote(target) + ", which leads to nothing",
			Advice: "put the archive there, or remove the link", Err: err,
		}
	}
	f.entries = append(f.entries, found{path: path, namespace: namespace, err: bad})
}

// bundle adds an entry that was named outright, so its name and kind do not matter.
func (f *finder) bundle(b found) {
	switch {
	case b.namespace == "" && !f.anyNamespace:
		b.err = &Error{
			Code: CodeNamespace, Found: "no namespace to import into",
			Advice: "name one with -n, k8s.io for Kubernetes",
		}
	case b.namespace != "" && identifiers.Validate(b.namespace) != nil:
		b.err = badNamespace(b.namespace)
	}
	f.entries = append(f.entries, b)
}

// badNamespace says which rule of containerd a name breaks, see its package identifiers.
func badNamespace(name string) *Error {
	return &Error{
		Code: CodeNamespace, Found: "namespace " + quote(name) + " that containerd refuses",
		Expected: "at most 76 letters and digits, with single '.', '_' or '-' between them",
		Advice:   "rename the directory",
	}
}

// isLayout reports whether dir is an OCI image layout, whole or damaged. An index.json alone is
// not enough: among the bundles of a namespace it is clutter.
func isLayout(dir string) bool {
	is := func(name string, kind func(fs.FileMode) bool) bool {
		info, err := os.Stat(filepath.Join(dir, name))
		return err == nil && kind(info.Mode())
	}
	return is("oci-layout", fs.FileMode.IsRegular) ||
		is("index.json", fs.FileMode.IsRegular) && is("blobs", fs.FileMode.IsDir)
}

// clutter says why an entry of a namespace directory is not taken for a bundle; "" means it is.
// Whatever is named like a bundle is one, also a FIFO: it has to be reported as unreadable then.
func clutter(path string, info fs.FileInfo) string {
	name := filepath.Base(path)
	switch {
	case strings.HasPrefix(name, "."):
		return "is hidden"
	case namedLikeBundle(name):
		return ""
	case info.IsDir() && isLayout(path):
		return ""
	case info.IsDir():
		return "is a directory without an OCI layout"
	case hasSuffix(name, ".part", ".partial", ".tmp", ".crdownload", ".aria2", "~"):
		return "is an unfinished download or a temporary file"
	case hasSuffix(name, ".sha256", ".sha512", ".sha256sum", ".sha512sum", ".md5", ".sig", ".asc", ".minisig"):
		return "is a checksum or signature"
	}
	return "is not named like a bundle (.tar, .tar.gz, .tar.zst or an OCI layout directory)"
}

// namedLikeBundle knows compressions that are not supported too, so that they are refused by name
// and not passed over.
func namedLikeBundle(name string) bool {
	return hasSuffix(filepath.Base(name), ".tar", ".tgz", ".tzst", ".tar.gz", ".tar.zst", ".tar.zstd",
		".tar.xz", ".txz", ".tar.bz2", ".tbz2", ".tar.lz4", ".tar.lzma", ".tar.z") && !strings.HasPrefix(filepath.Base(name), ".")
}

func hasSuffix(name string, suffixes ...string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(name, s) })
}
