package preseed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	contentapi "github.com/containerd/containerd/api/services/content/v1"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
)

// Labels with which a blob keeps others, and snapshots, from garbage collection. Source:
// containerd, docs/garbage-collection.md.
const (
	gcContent  = "containerd.io/gc.ref.content"
	gcSnapshot = "containerd.io/gc.ref.snapshot."
)

// rehashSize is how much of a blob of the store is read at a time. A daemon sends it in one message, of
// which several copies are under way: with a quarter of messageSize a verification takes 50 MiB of
// memory instead of 70, and hardly longer.
const rehashSize = 256 << 10

// inspector looks at a blob that the store's database lists and returns why its file is not what it
// has to be: nil when it is.
type inspector func(ctx context.Context, s *Store, desc ocispec.Descriptor) error

// inspect looks at the files of the blobs that the images need, each once: namespaces share them. It
// returns what is wrong by digest. The error is for a store that does not answer.
func (r *run) inspect(ctx context.Context, have map[blobKey]content.Info, look inspector) (map[digest.Digest]error, error) {
	var (
		mu      sync.Mutex
		damaged = map[digest.Digest]error{}
	)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(r.o.Jobs)
	for k, desc := range r.listed(have) {
		g.Go(func() error {
			err := look(namespaces.WithNamespace(ctx, k.namespace), r.store, desc)
			if err == nil {
				return nil
			}
			if ctx.Err() != nil || codeOf(err) == CodeUnavailable {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			damaged[k.digest] = err
			return nil
		})
	}
	return damaged, g.Wait()
}

// listed returns the blobs that the images need and the database lists, with one namespace of each.
func (r *run) listed(have map[blobKey]content.Info) map[blobKey]ocispec.Descriptor {
	all, seen := map[blobKey]ocispec.Descriptor{}, map[digest.Digest]bool{}
	for _, i := range r.images() {
		for _, n := range i.verdict.needs {
			k := blobKey{i.bundle.namespace, n.desc.Digest}
			if info, ok := have[k]; ok && info.Size == n.desc.Size && !seen[k.digest] {
				seen[k.digest], all[k] = true, n.desc
			}
		}
	}
	return all
}

// probe is the inspector of an import: the file is there, and is as long as it has to be.
func probe(ctx context.Context, s *Store, desc ocispec.Descriptor) error {
	err := s.Probe(ctx, desc)
	if errdefs.IsNotFound(err) {
		return errors.New("its file is not there")
	}
	return err
}

// rehash is the inspector of a verification: it reads the whole file.
func rehash(ctx context.Context, s *Store, desc ocispec.Descriptor) error {
	if err := probe(ctx, s, desc); err != nil {
		return err
	}
	ra, err := s.Content.ReaderAt(ctx, desc)
	if err != nil {
		return err
	}
	defer ra.Close()
	digester := desc.Digest.Algorithm().Digester()
	// The struct hides what would not use the buffer.
	from := struct{ io.Reader }{io.NewSectionReader(ra, 0, desc.Size)}
	if _, err := io.CopyBuffer(digester.Hash(), from, make([]byte, min(rehashSize, desc.Size+1))); err != nil {
		return err
	}
	if found := digester.Digest(); found != desc.Digest {
		return fmt.Errorf("its content has digest %s", found)
	}
	return nil
}

// probeOnline asks for a blob's last byte: the daemon opens the file, which a question for the
// blob's size does not make it do.
func probeOnline(c *containerd.Client) func(context.Context, ocispec.Descriptor) error {
	conn, ok := c.Conn().(grpc.ClientConnInterface)
	if !ok {
		return func(context.Context, ocispec.Descriptor) error { return errNotServing }
	}
	client := contentapi.NewContentClient(conn)
	return func(ctx context.Context, desc ocispec.Descriptor) error {
		ctx, cancel := context.WithCancel(ctx) // else the stream's goroutine outlives its use
		defer cancel()
		stream, err := client.Read(ctx, &contentapi.ReadContentRequest{Digest: desc.Digest.String(), Offset: max(0, desc.Size-1), Size: 1})
		if err != nil {
			return errgrpc.ToNative(err)
		}
		message, err := stream.Recv()
		switch {
		case err != nil && !errors.Is(err, io.EOF):
			return errgrpc.ToNative(err)
		case len(message.GetData()) == 0 && desc.Size > 0:
			return fmt.Errorf("its file has less than %d bytes", desc.Size)
		}
		return nil
	}
}

// heal takes damaged blobs out of the store, out of every namespace and off the disk, so that the
// jobs write them anew. They have to come back to every namespace that had them. What cannot be
// taken out is left in the jobs: it would seem to be there.
func (c *copier) heal(ctx context.Context, damaged map[digest.Digest]error) {
	maps.DeleteFunc(damaged, func(d digest.Digest, _ error) bool { return c.byDigest[d] == nil })
	if len(damaged) == 0 {
		return
	}
	if err := c.remove(ctx, damaged); err != nil {
		for d := range damaged {
			c.byDigest[d].stuck = err
		}
	}
}

func (c *copier) remove(ctx context.Context, damaged map[digest.Digest]error) error {
	all, err := c.store.Namespaces(ctx)
	if err != nil {
		return fmt.Errorf("list namespaces: %w", err)
	}
	for _, namespace := range all {
		for d := range damaged {
			if err := c.forget(ctx, namespace, d); err != nil {
				return fmt.Errorf("remove damaged blob %s: %w", d, err)
			}
		}
	}
	return c.store.Purge(ctx, slices.Collect(maps.Keys(damaged)))
}

// forget removes a blob from a namespace. What the blob refers to is put under the lease before, for
// nothing else may keep it.
func (c *copier) forget(ctx context.Context, namespace string, d digest.Digest) error {
	ctx = namespaces.WithNamespace(ctx, namespace)
	info, err := c.store.Content.Info(ctx, d)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := c.leases.keep(ctx, namespace, info.Labels); err != nil {
		return err
	}
	j := c.byDigest[d]
	j.kept[namespace] = info.Labels
	if !slices.Contains(j.namespaces, namespace) {
		j.namespaces = append(j.namespaces, namespace)
	}
	if err := c.store.Content.Delete(ctx, d); err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	return nil
}

// restore gives a healed blob the labels that it had.
func (c *copier) restore(ctx context.Context, j *job, namespace string) error {
	labels := j.kept[namespace]
	if len(labels) == 0 {
		return nil
	}
	var fields []string
	for label := range labels {
		fields = append(fields, "labels."+label)
	}
	_, err := c.store.Content.Update(ctx, content.Info{Digest: j.desc.Digest, Labels: labels}, fields...)
	return err
}

// keep puts what a blob's labels refer to under the namespace's lease.
func (l *leaser) keep(ctx context.Context, namespace string, labels map[string]string) error {
	if _, err := l.context(ctx, namespace); err != nil {
		return err
	}
	for label, value := range labels {
		resource := leases.Resource{ID: value, Type: "content"}
		if snapshotter, ok := strings.CutPrefix(label, gcSnapshot); ok {
			snapshotter, _, _ = strings.Cut(snapshotter, "/")
			resource.Type = "snapshots/" + snapshotter
		} else if !strings.HasPrefix(label, gcContent) {
			continue
		}
		if err := l.store.Leases.AddResource(ctx, l.held[namespace], resource); err != nil {
			return fmt.Errorf("lease %s: %w", value, err)
		}
	}
	return nil
}

// purgeOnline has the daemon collect its garbage: that removes the files of blobs that no namespace
// lists any more. The end of a lease is what can be waited for.
func purgeOnline(c *containerd.Client) func(context.Context, []digest.Digest) error {
	return func(ctx context.Context, _ []digest.Digest) error {
		all, err := c.NamespaceService().List(ctx)
		if err != nil || len(all) == 0 {
			return err
		}
		ctx = namespaces.WithNamespace(ctx, all[0])
		lease, err := c.LeasesService().Create(ctx, leases.WithRandomID())
		if err != nil {
			return fmt.Errorf("make lease: %w", err)
		}
		return c.LeasesService().Delete(ctx, lease, leases.SynchronousDelete)
	}
}
