package preseed

import (
	"context"
	"fmt"
	"io"
	"os"
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
func (a *applier) Apply(ctx context.Context, layer ocispec.Descriptor, mounts []mount.Mount, o ...diff.ApplyOpt) (ocispec.Descriptor, error) {
	var found digest.Digest
	dir, options, err := directory(mounts)
	if err == nil && images.IsLayerType(layer.MediaType) && !strings.HasSuffix(layer.MediaType, "+encrypted") {
		found, err = a.extract(ctx, layer, dir, options)
	} else {
		var desc ocispec.Descriptor
		desc, err = a.outside.Apply(ctx, layer, mounts, o...)
		found = desc.Digest
	}
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	a.left.Add(-layer.Size)
	a.tell(layer.Size)
	return ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayer, Digest: found}, a.check(layer, found)
}

// check compares a layer's diff ID with what the config says of it.
func (a *applier) check(layer ocispec.Descriptor, found digest.Digest) error {
	root := a.image.verdict.rootfs
	var want digest.Digest
	for n, l := range root.layers { // one layer may be there twice
		if l.Digest == layer.Digest {
			want = root.diffIDs[n]
		}
		if want == found {
			return nil
		}
	}
	return &Error{
		Code: archive.CodeDigestMismatch, Member: memberOf(a.image.bundle.archive, layer.Digest),
		Expected: "a layer with diff ID " + want.String(), Found: "diff ID " + found.String(), Advice: damagedAdvice,
	}
}

// extract unpacks a layer into a directory and returns its diff ID.
func (a *applier) extract(ctx context.Context, layer ocispec.Descriptor, dir string, o []tararchive.ApplyOpt) (digest.Digest, error) {
	from, err := a.open(ctx, layer)
	if err != nil {
		return "", err
	}
	defer from.Close()
	plain, err := compression.DecompressStream(from)
	if err != nil {
		return "", fmt.Errorf("decompress layer %s: %w", layer.Digest, err)
	}
	defer plain.Close()
	digester := digest.Canonical.Digester()
	tee := io.TeeReader(plain, digester.Hash())
	if _, err := tararchive.Apply(ctx, dir, tee, o...); err != nil {
		return "", fmt.Errorf("unpack layer %s: %w", layer.Digest, err)
	}
	if _, err := io.Copy(io.Discard, tee); err != nil { // what follows the tar's end belongs to the diff ID
		return "", fmt.Errorf("unpack layer %s: %w", layer.Digest, err)
	}
	return digester.Digest(), nil
}

// open reads a layer from the bundle, or from the store where the bundle is compressed as a whole.
func (a *applier) open(ctx context.Context, layer ocispec.Descriptor) (io.ReadCloser, error) {
	if from := a.image.bundle.archive; from.Compression == archive.None {
		if blob, ok := from.Blob(layer.Digest); ok {
			return io.NopCloser(blob.Reader()), nil
		}
	}
	ra, err := a.store.ReaderAt(ctx, layer)
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(ra, 0, layer.Size), ra}, nil
}

// directory finds the one directory that an overlay or bind mount would write to, and how whiteouts
// are written there. It is an error when there is none that this process may write to as it is.
// Source: containerd, core/diff/apply/apply_linux.go.
func directory(mounts []mount.Mount) (string, []tararchive.ApplyOpt, error) {
	if len(mounts) != 1 || os.Geteuid() != 0 || userns.RunningInUserNS() {
		return "", nil, os.ErrPermission
	}
	m := mounts[0]
	switch m.Type {
	case "bind":
		return m.Source, nil, isDir(m.Source)
	case "overlay":
		options := []tararchive.ApplyOpt{tararchive.WithConvertWhiteout(tararchive.OverlayConvertWhiteout)}
		if lower := mountOption(m, "lowerdir="); lower != "" {
			options = append(options, tararchive.WithParents(strings.Split(lower, ":")))
		}
		upper := mountOption(m, "upperdir=")
		return upper, options, isDir(upper)
	}
	return "", nil, os.ErrInvalid
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
