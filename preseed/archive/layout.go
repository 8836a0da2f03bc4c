package archive

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// layout is a directory that is an OCI image layout.
type layout struct {
	dir string
	a   *Archive
}

// openLayout reads the index of an OCI layout directory.
func openLayout(ctx context.Context, w watched) (*Archive, error) {
	a := &Archive{Format: OCILayout, Compression: None}
	l := layout{dir: w.path, a: a}
	a.find = l.find
	if err := l.look(); err != nil {
		return nil, err
	}
	if err := l.measure(ctx); err != nil {
		return nil, err
	}
	if err := a.readLayout(l.document); err != nil {
		return nil, err
	}
	return a, nil
}

// look says what a directory without a layout is. It looks no deeper than it
// must, for the directory may be any.
func (l layout) look() error {
	var s survey
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		s.add(entry.Name())
		if entry.IsDir() || entry.Name() == ocispec.ImageLayoutFile || entry.Name() == ocispec.ImageIndexFile {
			continue
		}
		s.ignore(entry.Name())
	}
	l.a.Ignored, l.a.IgnoredCount = s.ignored, s.dropped
	switch {
	case s.has(ocispec.ImageLayoutFile) && s.has(ocispec.ImageIndexFile):
		return nil
	case s.has(manifestFile):
		return &Error{Code: CodeNotAnImage, Found: "a docker archive that was unpacked", Expected: "an OCI layout directory", Advice: "pack it: tar -cf x.tar -C " + quote(l.dir) + " ."}
	}
	return s.verdict()
}

// measure adds up the sizes of the files. Links are followed, as they are when
// a blob is read.
func (l layout) measure(ctx context.Context) error {
	for _, name := range []string{ocispec.ImageLayoutFile, ocispec.ImageIndexFile, "blobs"} {
		err := filepath.WalkDir(filepath.Join(l.dir, name), func(path string, entry fs.DirEntry, err error) error {
			if err == nil {
				err = ctx.Err()
			}
			if err != nil || entry.IsDir() {
				return err
			}
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
				l.a.Size += info.Size()
			}
			return nil
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (l layout) document(name string) ([]byte, error) {
	f, w, err := l.open(filepath.Join(l.dir, name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	l.a.watch(w)
	return readDocument(countedReader{f, &l.a.read}, name, w.info.Size())
}

// open is open for a file of the layout, which must be a regular one.
func (l layout) open(path string) (*os.File, watched, error) {
	f, w, err := open(path)
	if err != nil {
		return nil, w, err
	}
	if w.info.IsDir() {
		f.Close()
		return nil, w, &Error{Code: CodeNotAnImage, Found: "a directory", Expected: "a file"}
	}
	return f, w, nil
}

// find finds a blob of the layout.
func (l layout) find(d digest.Digest) (*Blob, *Error) {
	name := blobName(d)
	if name == "" {
		return nil, &Error{Code: CodeMissingBlob, Found: "no digest: " + quote(d.String())}
	}
	path := filepath.Join(l.dir, filepath.FromSlash(name))
	f, w, err := l.open(path)
	if err != nil {
		return nil, notFound(name, err)
	}
	f.Close()
	l.a.watch(w)
	return &Blob{Digest: d, Size: w.info.Size(), Member: name, Path: path, ReaderAt: fileAt{path, &l.a.read}}, nil
}

func notFound(name string, err error) *Error {
	var e *Error
	switch {
	case errors.As(err, &e):
		return &Error{Code: CodeMissingBlob, Member: name, Found: e.Found, Expected: "a regular file"}
	case errors.Is(err, fs.ErrNotExist):
		return &Error{Code: CodeMissingBlob, Member: name, Found: "not in the layout"}
	}
	return &Error{Code: CodeOf(err), Member: name, Found: "it cannot be opened", Err: err}
}

// fileAt opens its file for each read, so that a layout of a thousand blobs
// needs no thousand file descriptors. Read in large pieces.
type fileAt struct {
	path string
	n    *atomic.Int64
}

func (f fileAt) ReadAt(p []byte, off int64) (int, error) {
	file, _, err := open(f.path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	return counted{file, f.n}.ReadAt(p, off)
}
