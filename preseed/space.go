package preseed

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"

	"seedbed/preseed/archive"
)

// Room in bytes that is left for what comes with blobs: the database, and what the file system needs
// for a file.
const (
	spareRoom = 256 << 10
	blobRoom  = 4 << 10
)

// fit looks before the first write whether everything finds room in the store. Where it does not, the
// largest images are given up until the others do.
func (r *run) fit(ctx context.Context, d *decision) {
	if r.store.Free == nil {
		return
	}
	free, err := r.store.Free(ctx)
	if err != nil { // the system will say so when it is full
		return
	}
	work := slices.Clone(d.work)
	slices.SortStableFunc(work, func(a, b *image) int { return cmp.Compare(d.missing(b), d.missing(a)) })
	for n, i := range work {
		need := d.missing(work[n:]...)
		if need+spareRoom <= free || d.missing(i) == 0 {
			return
		}
		i.fail(&Error{
			Code:     archive.CodeNoSpace,
			Found:    fmt.Sprintf("%d bytes free on the file system of the store", free),
			Expected: fmt.Sprintf("%d bytes for this image, %d for all that are to be imported", d.missing(i), need),
			Advice:   adviceNoSpace,
		})
	}
}

// missing is what the store needs room for to have the images, each blob counted once.
func (d *decision) missing(images ...*image) (sum int64) {
	counted := map[digest.Digest]bool{}
	for _, i := range images {
		for _, n := range i.verdict.needs {
			if _, there := d.have[blobKey{i.bundle.namespace, n.desc.Digest}]; !there && !counted[n.desc.Digest] {
				counted[n.desc.Digest] = true
				sum += n.desc.Size + blobRoom
			}
		}
	}
	return sum
}

// FreeBytes returns the bytes that a user may still write to the file system of path.
func FreeBytes(path string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 0, fmt.Errorf("look for free space at %q: %w", path, err)
	}
	return int64(s.Bavail) * s.Bsize, nil
}

// freeOnline asks the daemon where its content lies. The daemon of a unix socket is on this host; one
// that sees other mounts than this process makes the answer an error, or one that is too large, and
// the daemon itself says then when there is no space.
func freeOnline(c *containerd.Client) func(context.Context) (int64, error) {
	return func(ctx context.Context) (int64, error) {
		found, err := c.IntrospectionService().Plugins(ctx, "type==io.containerd.content.v1")
		if err != nil {
			return 0, fmt.Errorf("ask for containerd's directories: %w", err)
		}
		for _, p := range found.Plugins {
			if root := p.Exports["root"]; root != "" {
				return FreeBytes(root)
			}
		}
		return 0, fmt.Errorf("ask for containerd's directories: no content store with a directory")
	}
}
