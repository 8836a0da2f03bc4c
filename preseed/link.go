package preseed

import (
	"context"
	"errors"

	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"seedbed/preseed/archive"
)

// checkLink refuses Options.Link for a store that cannot link.
func (r *run) checkLink() error {
	if r.o.Link && r.store.Link == nil {
		return &OptionError{Option: "link", Value: "true", Err: errors.New("blobs can be linked only into a store without a daemon")}
	}
	return nil
}

// linkable fails the bundles that have nothing to link.
func (r *run) linkable() {
	if !r.o.Link {
		return
	}
	for _, b := range r.bundles {
		if b.archive != nil && b.archive.Format != archive.OCILayout {
			b.fail(&Error{
				Code: CodeConflict, Found: "an archive, whose blobs are no files of their own",
				Expected: "an OCI layout directory, for its blobs are to be linked", Advice: adviceNoLink,
			})
		}
	}
}

const adviceNoLink = "leave out --link to have the blobs copied"

// link gives the store a blob's own file instead of a copy, unless it has the blob. The namespace
// finds it there then.
func (c *copier) link(ctx context.Context, j *job, blob *archive.Blob) error {
	namespace, _ := namespaces.Namespace(ctx)
	if _, there := c.have[blobKey{namespace, j.desc.Digest}]; there || !c.links || blob.Path == "" {
		return nil
	}
	err := c.store.Link(ctx, j.desc, blob.Path)
	switch {
	case err == nil:
		c.progress.copied(j.desc.Size)
		return nil
	case errdefs.IsFailedPrecondition(err):
		return c.commitError(blob, j.desc, err)
	case errors.Is(err, unix.EXDEV):
		return &Error{
			Code: CodeConflict, Found: "a layout directory on another file system than the store",
			Expected: "the same file system, for its blobs are to be linked", Advice: adviceNoLink,
		}
	}
	return err
}
