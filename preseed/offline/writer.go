package offline

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"
)

// flushSize is after how many bytes the kernel is told to begin writing them to the disk, so that
// little is left to wait for at the end.
const flushSize = 8 << 20

// writer is a blob that is being written.
type writer struct {
	blobs   *blobs
	ref     string
	path    string
	file    *os.File // nil when it is closed
	digest  digest.Digester
	total   int64
	offset  int64
	flushed int64 // bytes whose write-out was begun
	started time.Time
	updated time.Time
}

func newWriter(b *blobs, o content.WriterOpts, path string) (*writer, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &writer{blobs: b, ref: o.Ref, path: path, file: f, digest: digest.Canonical.Digester(), total: o.Desc.Size, started: now, updated: now}, nil
}

// Write implements content.Writer.
func (w *writer) Write(p []byte) (int, error) {
	if w.file == nil {
		return 0, os.ErrClosed
	}
	n, err := w.file.Write(p)
	w.digest.Hash().Write(p[:n])
	w.offset += int64(n)
	w.updated = time.Now()
	if w.offset-w.flushed >= flushSize {
		// A hint: what it cannot do, settle does.
		_ = unix.SyncFileRange(int(w.file.Fd()), w.flushed, w.offset-w.flushed, unix.SYNC_FILE_RANGE_WRITE)
		w.flushed = w.offset
	}
	return n, err
}

// Digest implements content.Writer.
func (w *writer) Digest() digest.Digest { return w.digest.Digest() }

// Status implements content.Writer.
func (w *writer) Status() (content.Status, error) {
	return content.Status{Ref: w.ref, Offset: w.offset, Total: w.total, StartedAt: w.started, UpdatedAt: w.updated}, nil
}

// Truncate implements content.Writer, for size 0 as the local store does.
func (w *writer) Truncate(size int64) error {
	if size != 0 {
		return fmt.Errorf("truncate to %d: %w", size, errdefs.ErrInvalidArgument)
	}
	w.offset, w.flushed = 0, 0
	w.digest.Hash().Reset()
	if _, err := w.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return w.file.Truncate(0)
}

// Commit implements content.Writer. The labels are the metadata's concern.
func (w *writer) Commit(ctx context.Context, size int64, expected digest.Digest, _ ...content.Opt) error {
	if w.file == nil {
		return fmt.Errorf("commit on closed writer: %w", errdefs.ErrFailedPrecondition)
	}
	defer w.Close()
	if size > 0 && size != w.offset {
		return fmt.Errorf("unexpected commit size %d, expected %d: %w", w.offset, size, errdefs.ErrFailedPrecondition)
	}
	if err := w.rehash(expected); err != nil {
		return err
	}
	found := w.Digest()
	if expected != "" && expected != found {
		return fmt.Errorf("unexpected commit digest %s, expected %s: %w", found, expected, errdefs.ErrFailedPrecondition)
	}
	if err := w.file.Chmod(0o444); err != nil {
		return err
	}
	return w.blobs.keep(ctx, w, found)
}

// rehash reads the file again when it has to have a digest of another algorithm: the metadata does
// not say which when it opens the writer.
func (w *writer) rehash(expected digest.Digest) error {
	if expected == "" || expected.Algorithm() == w.Digest().Algorithm() || !expected.Algorithm().Available() {
		return nil
	}
	w.digest = expected.Algorithm().Digester()
	_, err := io.Copy(w.digest.Hash(), io.NewSectionReader(w.file, 0, w.offset))
	return err
}

// Close implements content.Writer. What was written stays until it is begun again or aborted.
func (w *writer) Close() error {
	if w.file == nil {
		return nil
	}
	err := w.file.Close()
	w.file = nil
	return err
}

func (w *writer) remove() error {
	_ = w.Close()
	return os.Remove(w.path)
}
