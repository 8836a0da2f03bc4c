package offline

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"
)

// linkPrefix begins the name that a file has below the root until its content is known to be right.
const linkPrefix = ".seedbed-link-"

// link makes the file at path that of a blob, by a hard link, once it has hashed it. The error is
// ErrFailedPrecondition of errdefs when the content is another, EXDEV when the file lies on another
// file system. The file has two names then: whoever may write to it by the one changes the other.
func (s *Store) link(ctx context.Context, desc ocispec.Descriptor, path string) error {
	if info, err := s.blobs.Info(ctx, desc.Digest); err == nil && info.Size == desc.Size {
		return nil
	}
	root := filepath.Dir(filepath.Dir(s.bolt.Path()))
	linked := filepath.Join(root, linkPrefix+rand.Text())
	if err := unix.Linkat(unix.AT_FDCWD, path, unix.AT_FDCWD, linked, unix.AT_SYMLINK_FOLLOW); err != nil {
		return &os.LinkError{Op: "link", Old: path, New: root, Err: err}
	}
	if err := verifyFile(linked, desc); err != nil {
		return errors.Join(err, os.Remove(linked))
	}
	name := filepath.Join(root, contentDir, "blobs", desc.Digest.Algorithm().String(), desc.Digest.Encoded())
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return errors.Join(err, os.Remove(linked))
	}
	if err := os.Rename(linked, name); err != nil {
		return errors.Join(err, os.Remove(linked))
	}
	// A rename does nothing when both names are those of one file: rename(2).
	if err := os.Remove(linked); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func verifyFile(path string, desc ocispec.Descriptor) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	digester := desc.Digest.Algorithm().Digester()
	// The struct hides what would not use the buffer.
	n, err := io.CopyBuffer(digester.Hash(), struct{ io.Reader }{f}, make([]byte, 1<<20))
	if err != nil {
		return err
	}
	if n != desc.Size || digester.Digest() != desc.Digest {
		return fmt.Errorf("%d bytes of digest %s: %w", n, digester.Digest(), errdefs.ErrFailedPrecondition)
	}
	return nil
}

// removeLinks removes what a killed import left.
func removeLinks(root string) error {
	left, err := filepath.Glob(filepath.Join(root, linkPrefix+"*"))
	for _, path := range left {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}
