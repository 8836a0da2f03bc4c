package preseed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"

	"seedbed/preseed/archive"
)

// messageSize is how much is read and written at a time. containerd's content service is three
// times slower with 32 KiB, and gains nothing from more.
const messageSize = 1 << 20

// copier brings the blobs of the images to the store. A blob is one job however many images,
// bundles and namespaces want it, so it is read once.
type copier struct {
	store    *Store
	jobs     []*job
	byDigest map[digest.Digest]*job
	have     map[blobKey]content.Info
	leases   *leaser
	limit    int
	links    bool // blobs are linked
	progress *progress
	mu       sync.Mutex // guards the byte counts of bundle reports
	buffers  sync.Pool
}

// job is one blob that has to be in some namespaces.
type job struct {
	need
	namespaces []string
	sources    []*bundle // who has it, in the report's order
	damaged    map[*bundle]error
	failed     map[string]error             // by namespace: why it is not there
	kept       map[string]map[string]string // by namespace: the labels of a damaged blob, to be restored
	stuck      error                        // why a damaged blob of the store is still there
}

// writer returns a copier without jobs.
func (r *run) writer() *copier {
	c := &copier{store: r.store, byDigest: map[digest.Digest]*job{}, leases: r.leases, limit: r.o.Jobs, progress: &r.progress}
	c.buffers.New = func() any { b := make([]byte, messageSize); return &b }
	return c
}

// newCopier collects the jobs of all images that have to be completed.
func (r *run) newCopier(d *decision, l *leaser) *copier {
	c := r.writer()
	c.have, c.leases, c.links = d.have, l, r.o.Link
	for _, i := range d.work {
		if !i.wanted() {
			continue
		}
		for _, n := range i.verdict.needs {
			c.add(i.bundle, n)
		}
	}
	// The largest first, so that no worker is left with a large one at the end.
	slices.SortStableFunc(c.jobs, func(a, b *job) int { return cmp.Compare(b.desc.Size, a.desc.Size) })
	return c
}

func (c *copier) add(b *bundle, n need) {
	j := c.byDigest[n.desc.Digest]
	if j == nil {
		j = &job{need: n, damaged: map[*bundle]error{}, failed: map[string]error{}, kept: map[string]map[string]string{}}
		c.byDigest[n.desc.Digest] = j
		c.jobs = append(c.jobs, j)
	}
	if !slices.Contains(j.namespaces, b.namespace) {
		j.namespaces = append(j.namespaces, b.namespace)
	}
	if !slices.Contains(j.sources, b) {
		j.sources = append(j.sources, b)
	}
}

// run does the jobs. What went wrong is left in them, see outcome.
func (c *copier) run(ctx context.Context) {
	c.progress.event(EventDecide, func(e *Event) {
		for _, j := range c.jobs {
			if _, ok := c.have[blobKey{j.namespaces[0], j.desc.Digest}]; !ok {
				e.Bytes += j.desc.Size
			}
		}
	})
	var g errgroup.Group
	g.SetLimit(c.limit)
	for _, j := range c.jobs {
		g.Go(func() error {
			for _, namespace := range j.namespaces {
				if err := c.ensure(ctx, j, namespace); err != nil {
					j.failed[namespace] = err
				}
			}
			return nil
		})
	}
	_ = g.Wait()
}

// outcome returns why an image cannot be named: a blob of it that is not there, or that its own
// bundle turned out to hold damaged.
func (c *copier) outcome(i *image) error {
	for _, n := range i.verdict.needs {
		j := c.byDigest[n.desc.Digest]
		if err := j.damaged[i.bundle]; err != nil {
			return err
		}
		if err := j.failed[i.bundle.namespace]; err != nil {
			return err
		}
		if n.desc.Size != j.desc.Size { // two bundles disagree, and the store has taken the other's word
			return &Error{
				Code: archive.CodeDigestMismatch, Member: memberOf(i.bundle.archive, n.desc.Digest),
				Expected: fmt.Sprintf("%d bytes", j.desc.Size), Found: fmt.Sprintf("%d bytes", n.desc.Size), Advice: damagedAdvice,
			}
		}
	}
	return nil
}

// ensure brings one blob to one namespace, from the first bundle whose copy is good.
func (c *copier) ensure(ctx context.Context, j *job, namespace string) error {
	if j.stuck != nil {
		return j.stuck
	}
	ctx, err := c.leases.context(namespaces.WithNamespace(ctx, namespace), namespace)
	if err != nil {
		return err
	}
	for _, source := range j.sources {
		if j.damaged[source] != nil {
			continue
		}
		written, err := c.writeFrom(ctx, j, source)
		if err == nil {
			if written > 0 {
				j.compareCopies(source)
			}
			return c.restore(ctx, j, namespace)
		}
		if !isDamage(err) {
			return err
		}
		j.damaged[source] = err
	}
	return j.damaged[j.sources[0]]
}

// compareCopies looks for damage in the copies that were not written, because the one of written
// was good. Large ones are left out: layers that many bundles share are most of what they hold.
func (j *job) compareCopies(written *bundle) {
	if j.desc.Size > comparedBlob {
		return
	}
	for _, source := range j.sources {
		if source == written || j.damaged[source] != nil {
			continue
		}
		if blob, ok := source.archive.Blob(j.desc.Digest); ok && !blob.Kept {
			if err := verifyBlob(blob, j.desc.Digest); err != nil && isDamage(err) {
				j.damaged[source] = err
			}
		}
	}
}

// writeFrom writes a blob from a bundle. What the store has lost meanwhile is written once more.
func (c *copier) writeFrom(ctx context.Context, j *job, source *bundle) (int64, error) {
	begin := time.Now()
	written, err := c.write(ctx, j, source)
	if err != nil && errorOf(err).Code == archive.CodeChangedWhileReading {
		written, err = c.write(ctx, j, source)
	}
	c.account(source, written, time.Since(begin))
	return written, err
}

// account adds to the bundle that a blob was read from.
func (c *copier) account(source *bundle, written int64, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	source.took += took
	source.report.Bytes.Written += written
}

// write copies a blob unless the store has it, and returns how many bytes it sent. The store is
// told digest and size beforehand and checks them at the end, so nothing is hashed here.
func (c *copier) write(ctx context.Context, j *job, source *bundle) (int64, error) {
	blob, ok := source.archive.Blob(j.desc.Digest)
	if !ok {
		return 0, missing(source.archive, j.desc.Digest)
	}
	if err := c.link(ctx, j, blob); err != nil {
		return 0, err
	}
	ref := ingestRef(j.desc.Digest)
	w, there, err := c.open(ctx, ref, j.desc)
	if errdefs.IsAlreadyExists(err) {
		return 0, c.label(ctx, j)
	}
	if err != nil {
		return 0, err
	}
	if there {
		err := w.Commit(ctx, j.desc.Size, j.desc.Digest, content.WithLabels(j.labels))
		switch {
		case err == nil:
			return 0, nil
		case errdefs.IsAlreadyExists(err):
			return 0, c.label(ctx, j)
		}
		if err := c.abort(ctx, w, ref); err != nil {
			return 0, err
		}
		if w, _, err = c.open(ctx, ref, j.desc); err != nil {
			return 0, err
		}
	}
	if blob.Kept {
		if blob, err = source.readAgain(ctx, j.desc.Digest); err != nil {
			return 0, errors.Join(err, c.abort(ctx, w, ref))
		}
	}
	return c.fill(ctx, w, j, blob)
}

// fill writes a blob from its begin and commits it.
func (c *copier) fill(ctx context.Context, w content.Writer, j *job, blob *archive.Blob) (int64, error) {
	sent, err := c.send(ctx, w, blob.Reader(), blob.Size, func(err error) error { return readError(blob, err) })
	if err == nil {
		err = w.Commit(ctx, j.desc.Size, j.desc.Digest, content.WithLabels(j.labels))
		if errdefs.IsAlreadyExists(err) {
			return sent, c.label(ctx, j)
		}
		err = c.commitError(blob, j.desc, err)
	}
	if err != nil {
		return sent, errors.Join(err, c.abort(ctx, w, ingestRef(j.desc.Digest)))
	}
	return sent, nil
}

// open returns a writer at the begin of the blob, or says that all of it is there already: another
// namespace has it. What an import left that was killed is thrown away: nobody knows what it holds.
// Source: containerd, core/metadata/content.go, Writer.
func (c *copier) open(ctx context.Context, ref string, desc ocispec.Descriptor) (w content.Writer, there bool, err error) {
	for try := 0; ; try++ {
		w, err := c.openUnlocked(ctx, ref, desc)
		if err != nil {
			return nil, false, err
		}
		status, err := w.Status()
		if err == nil && (status.Offset == 0 || status.Offset == desc.Size) {
			return w, status.Offset > 0, nil
		}
		w.Close()
		if err == nil && try > 0 {
			err = fmt.Errorf("open ingest of %s: %d bytes of an earlier import cannot be removed", desc.Digest, status.Offset)
		}
		if err != nil {
			return nil, false, err
		}
		if err := discard(ctx, c.store.Content, ref); err != nil {
			return nil, false, err
		}
	}
}

// openUnlocked waits while another import writes the same blob. content.OpenWriter would wait for a
// daemon that is gone as well.
func (c *copier) openUnlocked(ctx context.Context, ref string, desc ocispec.Descriptor) (content.Writer, error) {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		w, err := c.store.Content.Writer(ctx, content.WithRef(ref), content.WithDescriptor(desc))
		if !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "locked") {
			return w, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// ingestRef names an ingest by its digest alone, so that two imports at a time meet in one.
func ingestRef(d digest.Digest) string { return "seedbed-" + d.String() }

// send writes size bytes of r in full messages. What goes wrong with reading them is given to
// explain.
func (c *copier) send(ctx context.Context, w content.Writer, r io.Reader, size int64, explain func(error) error) (int64, error) {
	buffer := c.buffers.Get().(*[]byte)
	defer c.buffers.Put(buffer)
	sent := int64(0)
	for sent < size {
		if err := ctx.Err(); err != nil {
			return sent, err
		}
		n, err := io.ReadFull(r, (*buffer)[:min(messageSize, size-sent)])
		if err != nil {
			return sent, explain(err)
		}
		if _, err := w.Write((*buffer)[:n]); err != nil {
			return sent, writeError(err)
		}
		sent += int64(n)
		c.progress.copied(int64(n))
	}
	return sent, nil
}

// writeError knows what it means when the stream to a daemon ends: the daemon did. The client gives
// io.EOF as an error of its own, of which only the text is left.
func writeError(err error) error {
	if strings.HasSuffix(err.Error(), io.EOF.Error()) {
		return fmt.Errorf("write blob: %w: %w", ErrUnavailable, err)
	}
	return fmt.Errorf("write blob: %w", err)
}

// commitError finds out whose fault a refused commit is, by hashing what the archive has. When that is
// good, the archive was written to, or another process has taken the ingest away: the late clean-up of
// an import that a hanging containerd held up, say.
func (c *copier) commitError(blob *archive.Blob, desc ocispec.Descriptor, err error) error {
	if err == nil || !errdefs.IsFailedPrecondition(err) && !strings.Contains(err.Error(), syscall.ENOENT.Error()) {
		return err
	}
	if damage := verifyBlob(blob, desc.Digest); damage != nil {
		return damage
	}
	return &Error{
		Code: archive.CodeChangedWhileReading, Member: blob.Member, Found: "other bytes than a moment ago",
		Advice: "import the archive when it is written to its end", Err: err,
	}
}

// abort throws away what was written of a blob, also after ctx has ended. A daemon that does not
// answer is not waited for longer than cleanupTime: the next import removes what this one leaves.
func (c *copier) abort(ctx context.Context, w content.Writer, ref string) error {
	w.Close()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	err := discard(ctx, c.store.Content, ref)
	if ctx.Err() != nil || errdefs.IsUnavailable(err) {
		return nil
	}
	return err
}

// isDamage reports whether another bundle's copy of the blob may still be good.
func isDamage(err error) bool {
	switch errorOf(err).Code {
	case archive.CodeDigestMismatch, archive.CodeMissingBlob, archive.CodeTruncated, archive.CodeChangedWhileReading:
		return true
	}
	return false
}

// label adds the garbage collector's references to a blob that was there before without them.
func (c *copier) label(ctx context.Context, j *job) error {
	if len(j.labels) == 0 {
		return nil
	}
	info, err := c.store.Content.Info(ctx, j.desc.Digest)
	if err != nil {
		return err
	}
	added := newLabels(info.Labels, j.labels)
	if len(added) == 0 {
		return nil
	}
	var fields []string
	for label := range added {
		fields = append(fields, "labels."+label)
	}
	_, err = c.store.Content.Update(ctx, content.Info{Digest: j.desc.Digest, Labels: added}, fields...)
	return err
}
