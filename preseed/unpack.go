package preseed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/diff"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/core/unpack"
	"github.com/containerd/containerd/v2/defaults"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
)

// layersAtOnce is how many layers are unpacked at a time: decompressing them is work for the CPU,
// and more than two wait for each other's files.
const layersAtOnce = 2

// Snapshotter is where an import unpacks images to.
type Snapshotter struct {
	snapshots.Snapshotter
	// Name is containerd's name of the snapshotter, as in "overlayfs".
	Name string
	// Capabilities are those that containerd's plugin for it has: with "rebase" the layers of an
	// image are unpacked at the same time.
	Capabilities []string
	// Applier unpacks where this process cannot write into a snapshot's mounts itself.
	Applier diff.Applier
}

// rootfs is what has to be unpacked so that an image can be run.
type rootfs struct {
	config  ocispec.Descriptor
	layers  []ocispec.Descriptor
	diffIDs []digest.Digest
}

// chainID is the name of the snapshot that has all layers.
func (f *rootfs) chainID() string { return identity.ChainID(f.diffIDs).String() }

// size sums up the layers as they are packed.
func (f *rootfs) size() (sum int64) {
	for _, layer := range f.layers {
		sum += layer.Size
	}
	return sum
}

// onlineSnapshotter returns how the snapshotter of a daemon is found. containerd's default is used
// when no name is given.
func onlineSnapshotter(c *containerd.Client) func(context.Context, string) (*Snapshotter, error) {
	return func(ctx context.Context, name string) (*Snapshotter, error) {
		if name == "" {
			name = defaults.DefaultSnapshotter
		}
		capabilities, err := c.GetSnapshotterCapabilities(ctx, name)
		if errdefs.IsUnavailable(err) || ctx.Err() != nil {
			return nil, err
		}
		if err != nil {
			return nil, &OptionError{Option: "snapshotter", Value: name, Err: errors.New("containerd has no such snapshotter")}
		}
		return &Snapshotter{Snapshotter: c.SnapshotService(name), Name: name, Capabilities: capabilities, Applier: c.DiffService()}, nil
	}
}

// findSnapshotter looks for the snapshotter once it is known that something is to be unpacked.
func (r *run) findSnapshotter(ctx context.Context) error {
	if !r.o.Unpack || r.store == nil {
		return nil
	}
	if r.store.Snapshotter == nil {
		return &OptionError{Option: "unpack", Value: r.o.Snapshotter, Err: errors.New("the store has no snapshotter")}
	}
	var err error
	r.snapshotter, err = r.store.Snapshotter(ctx, r.o.Snapshotter)
	return err
}

// packed says what an image lacks to be unpacked, "" when nothing. The config has to keep the
// snapshot from garbage collection.
func (r *run) packed(ctx context.Context, i *image, d *decision) (string, error) {
	root := i.verdict.rootfs
	if r.snapshotter == nil || root == nil {
		return "", nil
	}
	_, err := r.snapshotter.Stat(namespaces.WithNamespace(ctx, i.bundle.namespace), root.chainID())
	if errdefs.IsNotFound(err) {
		return "not unpacked with " + r.snapshotter.Name, nil
	}
	config := d.have[blobKey{i.bundle.namespace, root.config.Digest}]
	if err == nil && config.Labels[gcSnapshot+r.snapshotter.Name] != root.chainID() {
		return "not protected from garbage collection: snapshot " + root.chainID(), nil
	}
	return "", err
}

// unpack makes the snapshots of those images whose blobs are all there: the last that is done
// before they are named. What goes wrong is left in the images.
func (r *run) unpack(ctx context.Context, work []*image, c *copier) {
	if r.snapshotter == nil {
		return
	}
	work = slices.DeleteFunc(slices.Clone(work), func(i *image) bool {
		return !i.wanted() || i.verdict.rootfs == nil || c.outcome(i) != nil
	})
	r.progress.event(EventUnpack, func(e *Event) {
		for _, i := range work {
			e.Bytes += i.verdict.rootfs.size()
		}
	})
	u := &unpacker{run: r, copier: c, layers: semaphore.NewWeighted(layersAtOnce), locks: newKeyLocks()}
	var g errgroup.Group
	g.SetLimit(layersAtOnce)
	for _, i := range work {
		g.Go(func() error {
			if err := u.image(ctx, i); err != nil {
				i.fail(err)
			} else {
				i.report.Unpacked = true
			}
			return nil
		})
	}
	_ = g.Wait()
}

// unpacker is the unpacking of one run.
type unpacker struct {
	*run
	copier *copier
	layers *semaphore.Weighted // bounds the layers that are unpacked at a time
	locks  *keyLocks           // a layer that two images have is unpacked once
}

func (u *unpacker) image(ctx context.Context, i *image) error {
	ctx, err := u.copier.leases.context(namespaces.WithNamespace(ctx, i.bundle.namespace), i.bundle.namespace)
	if err != nil {
		return err
	}
	a := u.applier(i)
	defer a.finish()
	options := []unpack.UnpackerOpt{unpack.WithDuplicationSuppressor(u.locks), unpack.WithUnpackPlatform(unpack.Platform{
		Platform: platforms.All, SnapshotterKey: u.snapshotter.Name, Snapshotter: u.snapshotter,
		SnapshotterCapabilities: u.snapshotter.Capabilities, Applier: a,
	})}
	if slices.Contains(u.snapshotter.Capabilities, snapshots.RebaseCap) {
		options = append(options, unpack.WithUnpackLimiter(u.layers)) // which lets it take layers at a time
	}
	p, err := unpack.NewUnpacker(ctx, u.store.Content, options...)
	if err != nil {
		return err
	}
	// The unpacker learns what to do from the manifest and the config that pass through it.
	handler := p.Unpack(images.HandlerFunc(func(_ context.Context, d ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		if images.IsManifestType(d.MediaType) {
			return append([]ocispec.Descriptor{i.verdict.rootfs.config}, i.verdict.rootfs.layers...), nil
		}
		return nil, nil
	}))
	err = images.Walk(ctx, handler, ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest})
	if _, waitErr := p.Wait(); err == nil {
		err = waitErr
	}
	if err != nil {
		return fmt.Errorf("unpack with %s: %w", u.snapshotter.Name, err)
	}
	return nil
}

// keyLocks is a lock for each key.
type keyLocks struct {
	mu    sync.Mutex
	locks map[string]chan struct{}
}

func newKeyLocks() *keyLocks { return &keyLocks{locks: map[string]chan struct{}{}} }

// Lock waits for a key's lock, or for the end of ctx.
func (l *keyLocks) Lock(ctx context.Context, key string) error {
	l.mu.Lock()
	lock, ok := l.locks[key]
	if !ok {
		lock = make(chan struct{}, 1)
		l.locks[key] = lock
	}
	l.mu.Unlock()
	select {
	case lock <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Unlock gives a key's lock back.
func (l *keyLocks) Unlock(key string) {
	l.mu.Lock()
	lock := l.locks[key]
	l.mu.Unlock()
	<-lock
}

// rootfsOf returns what to unpack of the leaves: that of the best one for the platform.
func (j *judge) rootfsOf(leaves []*leaf) (*rootfs, error) {
	only := *j
	only.all = false
	best, err := only.choose(leaves)
	if err != nil {
		return nil, nil // nothing of it runs here, so there is nothing to unpack
	}
	m := best[0].manifest
	if m == nil || len(m.Layers) == 0 {
		return nil, nil
	}
	config, err := readConfig(j.archive, m.Config)
	if err != nil {
		return nil, err
	}
	desc := m.Config
	if !images.IsConfigType(desc.MediaType) {
		desc.MediaType = ocispec.MediaTypeImageConfig
	}
	return &rootfs{config: desc, layers: m.Layers, diffIDs: config.RootFS.DiffIDs}, nil
}
