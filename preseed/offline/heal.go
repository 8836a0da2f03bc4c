package offline

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// probe looks for a blob's file, see [preseed.Store].
func (s *Store) probe(ctx context.Context, desc ocispec.Descriptor) error {
	info, err := s.blobs.Info(ctx, desc.Digest)
	if err != nil {
		return err
	}
	if info.Size != desc.Size {
		return fmt.Errorf("its file has %d bytes", info.Size)
	}
	return nil
}

// purge removes the files of blobs that no namespace lists any more.
func (s *Store) purge(ctx context.Context, digests []digest.Digest) error {
	for _, d := range digests {
		if err := s.blobs.Delete(ctx, d); err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("remove blob %s: %w", d, err)
		}
	}
	return nil
}
