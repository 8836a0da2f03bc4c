package preseed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/diff"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/mount"
	tararchive "github.com/containerd/containerd/v2/pkg/archive"
	"github.com/containerd/containerd/v2/pkg/archive/compression"
	"github.com/moby/sys/userns"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"seedbed/preseed/archive"
	"seedbed/preseed/layer"
)

// applier unpacks the layers of one image. It writes into a snapshot's directory itself where it can,
// from the bundle where that can be read at any place: nothing has to go through a daemon then. In the
// same pass it hashes what it unpacks, and compares that with the diff ID of the config.
type applier struct {
	image   *image
	store   content.Store
	outside diff.Applier  // for snapshots that this process cannot write to
	tell    func(n int64) // n bytes of layers are done with
	left    atomic.Int64  // bytes of layers that are not
}

func (u *unpacker) applier(i *image) *applier {
	a := &applier{image: i, store: u.store.Content, outside: u.snapshotter.Applier, tell: func(n int64) {
		u.progress.event(EventUnpack, func(e *Event) {
			e.Bundle, e.Namespace = i.bundle.path, i.bundle.namespace
			e.BytesDone += n
		})
	}}
	a.left.Store(i.verdict.rootfs.size())
	return a
}

// finish counts the layers as done that did not have to be unpacked.
func (a *applier) finish() { a.tell(a.left.Load()) }

// Apply unpacks a layer into a snapshot's mounts.
func (a *applier) Apply(ctx context.Context, desc ocispec.Descriptor, mounts []mount.Mount, o ...diff.ApplyOpt) (ocispec.Descriptor, error) {
	found, err := a.unpack(ctx, desc, mounts, o)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	a.left.Add(-desc.Size)
	a.tell(desc.Size)
	return ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayer, Digest: found}, a.check(desc, found)
}

// unpack returns the diff ID of what it unpacked. Into an overlay's upper directory it unpacks fast,
// and again with containerd's own code when the layer is unusual.
func (a *applier) unpack(ctx context.Context, desc ocispec.Descriptor, mounts []mount.Mount, o []diff.ApplyOpt) (digest.Digest, error) {
	to, err := directory(mounts)
	if err != nil || !images.IsLayerType(desc.MediaType) || strings.HasSuffix(desc.MediaType, "+encrypted") {
		found, err := a.outside.Apply(ctx, desc, mounts, o...)
		return found.Digest, err
	}
	if to.upper {
		found, err := a.extract(ctx, desc, func(r io.Reader) error { return layer.Unpack(ctx, to.path, r) })
		if !errors.Is(err, layer.ErrUnusual) {
			return found, err
		}
		if err := empty(to.path); err != nil {
			return "", err
		}
	}
	return a.extract(ctx, desc, func(r io.Reader) error {
		_, err := tararchive.Apply(ctx, to.path, r, to.options...)
		return err
	})
}

// check compares a layer's diff ID with what the config says of it.
func (a *applier) check(desc ocispec.Descriptor, found digest.Digest) error {
	root := a.image.verdict.rootfs
	var want digest.Digest
	for n, l := range root.layers { // one layer may be there twice
		if l.Digest == desc.Digest {
			want = root.diffIDs[n]
		}
		if want == found {
			return nil
		}
	}
	return &Error{
		Code: archive.CodeDigestMismatch, Member: memberOf(a.image.bundle.archive, desc.Digest),
		Expected: "a layer with diff ID " + want.String(), Found: "diff ID " + found.String(), Advice: damagedAdvice,
	}
}

// extract decompresses a layer, has it unpacked and returns its diff ID.
func (a *applier) extract(ctx context.Context, desc ocispec.Descriptor, untar func(io.Reader) error) (digest.Digest, error) {
	from, err := a.open(ctx, desc)
	if err != nil {
		return "", err
	}
	defer from.Close()
	plain, err := compression.DecompressStream(from)
	if err != nil {
		return "", fmt.Errorf("decompress layer %s: %w", desc.Digest, err)
	}
	defer plain.Close()
	digester := digest.Canonical.Digester()
	tee := io.TeeReader(plain, digester.Hash())
	err = untar(tee)
	if err == nil { // what follows the tar's end belongs to the diff ID
		_, err = io.Copy(io.Discard, tee)
	}
	if err != nil {
		return "", fmt.Errorf("unpack layer %s: %w", desc.Digest, err)
	}
	return digester.Digest(), nil
}

// open reads a layer from the bundle, or from the store where the bundle is compressed as a whole.
func (a *applier) open(ctx context.Context, desc ocispec.Descriptor) (io.ReadCloser, error) {
	if from := a.image.bundle.archive; from.Compression == archive.None {
		if blob, ok := from.Blob(desc.Digest); ok {
			return io.NopCloser(blob.Reader()), nil
		}
	}
	ra, err := a.store.ReaderAt(ctx, desc)
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(ra, 0, desc.Size), ra}, nil
}

// target is a directory that a layer is unpacked into.
type target struct {
	path    string
	upper   bool // an overlay's, of which nothing below is known
	options []tararchive.ApplyOpt
}

// directory finds the one directory that an overlay or bind mount would write to, and how whiteouts
// are written there. It is an error when there is none that this process may write to as it is.
// Source: containerd, core/diff/apply/apply_linux.go.
func directory(mounts []mount.Mount) (target, error) {
	if len(mounts) != 1 || os.Geteuid() != 0 || userns.RunningInUserNS() {
		return target{}, os.ErrPermission
	}
	m := mounts[0]
	switch m.Type {
	case "bind":
		return target{path: m.Source}, isDir(m.Source)
	case "overlay":
		to := target{path: mountOption(m, "upperdir="), upper: true}
		to.options = append(to.options, tararchive.WithConvertWhiteout(tararchive.OverlayConvertWhiteout))
		if lower := mountOption(m, "lowerdir="); lower != "" {
			to.upper = false
			to.options = append(to.options, tararchive.WithParents(strings.Split(lower, ":")))
		}
		return to, isDir(to.path)
	}
	return target{}, os.ErrInvalid
}

// empty removes what a directory holds.
func empty(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return err
}

func mountOption(m mount.Mount, key string) string {
	for _, o := range m.Options {
		if value, ok := strings.CutPrefix(o, key); ok {
			return value
		}
	}
	return ""
}

func isDir(path string) error {
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		err = os.ErrInvalid
	}
	return err
}
