package offline

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/plugins/content/local"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"
)

// ingestRef names the one ingest that holds all files of a run until they get their names. It
// lies where containerd keeps an ingest of this reference, and its database does not know it: what
// a killed run leaves is removed by the next, or by containerd's garbage collection.
// Source: containerd, plugins/content/local/store.go, ingestRoot, and core/metadata/content.go,
// garbageCollect.
const ingestRef = "seedbed-offline"

// blobs is containerd's content store on disk, with one difference: what is committed to it is
// neither synced nor named before settle, which does so for all blobs at once.
type blobs struct {
	content.Store // what has its name
	root          string
	dir           string // of the files that have no name yet

	mu      sync.Mutex
	files   int                // files made in dir, for their names
	ingests map[string]*writer // by reference, until commit or abort
	pending map[digest.Digest]content.Info
	paths   map[digest.Digest]string // of the pending
}

// openBlobs opens the content store in root, and removes what a killed run left unless readOnly.
func openBlobs(root string, readOnly bool) (*blobs, error) {
	store, err := local.NewStore(root)
	if err != nil {
		return nil, err
	}
	b := &blobs{
		Store: store, root: root, dir: filepath.Join(root, "ingest", digest.FromString(ingestRef).Encoded()),
		ingests: map[string]*writer{}, pending: map[digest.Digest]content.Info{}, paths: map[digest.Digest]string{},
	}
	if !readOnly {
		err = os.RemoveAll(b.dir)
	}
	return b, err
}

// Info describes a blob, also one that is pending.
func (b *blobs) Info(ctx context.Context, d digest.Digest) (content.Info, error) {
	b.mu.Lock()
	info, ok := b.pending[d]
	b.mu.Unlock()
	if ok {
		return info, nil
	}
	return b.Store.Info(ctx, d)
}

// ReaderAt reads a blob, also one that is pending.
func (b *blobs) ReaderAt(ctx context.Context, desc ocispec.Descriptor) (content.ReaderAt, error) {
	b.mu.Lock()
	path, ok := b.paths[desc.Digest]
	b.mu.Unlock()
	if ok {
		return local.OpenReader(path)
	}
	return b.Store.ReaderAt(ctx, desc)
}

// Delete removes a blob, also one that is pending.
func (b *blobs) Delete(ctx context.Context, d digest.Digest) error {
	b.mu.Lock()
	path, ok := b.paths[d]
	delete(b.paths, d)
	delete(b.pending, d)
	b.mu.Unlock()
	if ok {
		return os.Remove(path)
	}
	return b.Store.Delete(ctx, d)
}

// Writer begins a blob. An ingest that was begun before and is not being written begins again.
func (b *blobs) Writer(ctx context.Context, opts ...content.WriterOpt) (content.Writer, error) {
	var o content.WriterOpts
	for _, opt := range opts {
		if err := opt(&o); err != nil {
			return nil, err
		}
	}
	if o.Ref == "" {
		return nil, fmt.Errorf("ref must not be empty: %w", errdefs.ErrInvalidArgument)
	}
	if d := o.Desc.Digest; d != "" {
		if _, err := b.Info(ctx, d); err == nil {
			return nil, fmt.Errorf("content %s: %w", d, errdefs.ErrAlreadyExists)
		}
	}
	return b.begin(o)
}

func (b *blobs) begin(o content.WriterOpts) (content.Writer, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.ingests[o.Ref]
	if old != nil && old.file != nil {
		return nil, fmt.Errorf("ref %s locked: %w", o.Ref, errdefs.ErrUnavailable)
	}
	if old != nil {
		_ = os.Remove(old.path) // it is replaced
	}
	if b.files == 0 {
		if err := b.makeDir(); err != nil {
			return nil, err
		}
	}
	w, err := newWriter(b, o, filepath.Join(b.dir, fmt.Sprintf("data%d", b.files)))
	if err != nil {
		return nil, err
	}
	b.files++
	b.ingests[o.Ref] = w
	return w, nil
}

// makeDir makes the directory for files without names as the local store makes an ingest.
func (b *blobs) makeDir() error {
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.dir, "ref"), []byte(ingestRef), 0o644)
}

// Status describes an ingest, of this process or of another's.
func (b *blobs) Status(ctx context.Context, ref string) (content.Status, error) {
	b.mu.Lock()
	w := b.ingests[ref]
	b.mu.Unlock()
	if w != nil {
		return w.Status()
	}
	return b.Store.Status(ctx, ref)
}

// Abort removes an ingest, of this process or of another's.
func (b *blobs) Abort(ctx context.Context, ref string) error {
	b.mu.Lock()
	w := b.ingests[ref]
	delete(b.ingests, ref)
	b.mu.Unlock()
	err := b.Store.Abort(ctx, ref)
	if w == nil {
		return err
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	return w.remove()
}

// keep takes a written file for the blob d, unless there is one.
func (b *blobs) keep(ctx context.Context, w *writer, d digest.Digest) error {
	_, err := b.Info(ctx, d)
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.ingests, w.ref)
	if err == nil || b.paths[d] != "" {
		return errors.Join(w.remove(), fmt.Errorf("content %s: %w", d, errdefs.ErrAlreadyExists))
	}
	b.paths[d] = w.path
	b.pending[d] = content.Info{Digest: d, Size: w.offset, CreatedAt: w.updated, UpdatedAt: w.updated}
	return nil
}

// settle makes all pending blobs durable and then gives them their names, so that after a power
// cut a name never stands for a blob that is not whole. Their directories are durable as well when
// it returns.
func (b *blobs) settle() error {
	if err := syncFileSystem(b.root); err != nil {
		return err
	}
	dirs := map[string]bool{}
	for d, path := range b.paths {
		name := filepath.Join(b.root, "blobs", d.Algorithm().String(), d.Encoded())
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.Rename(path, name); err != nil {
			return err
		}
		dirs[filepath.Dir(name)] = true
	}
	for dir := range dirs {
		for _, d := range []string{dir, filepath.Dir(dir), b.root} {
			if err := syncDir(d); err != nil {
				return err
			}
		}
	}
	return b.close()
}

// close removes what was not committed.
func (b *blobs) close() error {
	if b.files == 0 {
		return nil
	}
	return os.RemoveAll(b.dir)
}

// syncFileSystem writes to the disk all that the file system of path still has in memory. One call
// costs less than an fsync for each file: syncfs(2).
func syncFileSystem(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return &fs.PathError{Op: "syncfs", Path: path, Err: err}
	}
	return nil
}

func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
