package preseed

import (
	"context"
	"maps"

	"golang.org/x/sync/errgroup"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
)

// Import brings the store to the state that the bundles describe and reports on each of them. What
// is wrong with a bundle or an image is in the report, and the others go on; the error is for what
// leaves nothing to report: a source that does not exist or cannot be read, an [*OptionError], or
// the end of ctx, which comes with the report of what was done until then.
//
// A bundle whose images, blobs and pins are all in the store is unchanged: its layers are not read.
// A missing blob that several bundles hold is written from one of them. The other copies are hashed
// up to 8 MiB; a larger one that is damaged does no harm and goes unseen. [Check] looks at each.
func Import(ctx context.Context, s *Store, sources []Source, o Options) (*Report, error) {
	r, err := importOnce(ctx, s, sources, o, nil)
	if r == nil {
		return nil, err
	}
	if err == nil && o.Reconnect != nil && r.report.lost() {
		return importAgain(ctx, r, sources, o)
	}
	return r.report, err
}

// importOnce imports as long as the store is there. Left are leases of ours that an earlier attempt
// could not end. The run is nil when there is nothing to report.
func importOnce(ctx context.Context, s *Store, sources []Source, o Options, left leaseMap) (*run, error) {
	mode := ModeOnline
	if s.Offline {
		mode = ModeOffline
	}
	r, err := newRun(sources, o, mode)
	if err != nil {
		return nil, err
	}
	r.store, r.left = s, left
	defer r.keepAsking(ctx)()
	if err := r.checkLink(); err != nil {
		return nil, err
	}
	if err := r.findSnapshotter(ctx); err != nil {
		return nil, err
	}
	if !r.o.DryRun {
		release := r.hold(ctx)
		defer release()
	}
	r.index(ctx, false)
	r.linkable()
	r.strict()
	r.settleNames()
	r.stopAtFailure()
	r.sandbox()
	d := r.decide(ctx, probe)
	if r.o.DryRun {
		r.pretend(d)
	} else {
		r.apply(ctx, d)
	}
	r.requireStored(ctx)
	r.finish()
	return r, ctx.Err()
}

// decision is what the store has and what has to be done to it.
type decision struct {
	records map[key]images.Image
	have    map[blobKey]content.Info // blobs that the store has, but for the damaged
	damaged map[digest.Digest]error  // what is wrong with files of the store
	work    []*image                 // images to complete and name
}

type blobKey struct {
	namespace string
	digest    digest.Digest
}

// decide asks the store for everything that the images need, has every file of it looked at, and
// settles the images that need nothing.
func (r *run) decide(ctx context.Context, look inspector) *decision {
	d := &decision{}
	err := r.ask(ctx, d, look)
	for _, i := range r.images() {
		if err == nil {
			err = r.settleUnchanged(ctx, i, d)
		}
		if err != nil {
			i.bundle.fail(err)
		}
	}
	maps.DeleteFunc(d.have, func(k blobKey, _ content.Info) bool { return d.damaged[k.digest] != nil })
	return d
}

// ask fills in what the store has.
func (r *run) ask(ctx context.Context, d *decision, look inspector) (err error) {
	if d.records, err = r.records(ctx); err != nil {
		return err
	}
	if d.have, err = r.have(ctx); err != nil {
		return err
	}
	d.damaged, err = r.inspect(ctx, d.have, look)
	return err
}

// settleUnchanged compares an image with the store: it is unchanged, or it is work.
func (r *run) settleUnchanged(ctx context.Context, i *image, d *decision) (err error) {
	i.record = r.compare(i, d)
	if i.record.reason == "" {
		i.record.reason, err = r.packed(ctx, i, d)
	}
	if err != nil || i.record.reason != "" {
		d.work = append(d.work, i)
		return err
	}
	i.report.Status, i.report.Pinned = StatusUnchanged, i.record.pinned()
	i.report.Unpacked = r.snapshotter != nil && i.verdict.rootfs != nil
	return nil
}

// records lists the images of every namespace that has bundles.
func (r *run) records(ctx context.Context) (map[key]images.Image, error) {
	all := map[key]images.Image{}
	for _, namespace := range r.namespaces() {
		list, err := r.store.Images.List(namespaces.WithNamespace(ctx, namespace))
		if err != nil {
			return nil, err
		}
		for _, i := range list {
			all[key{namespace, i.Name}] = i
		}
	}
	return all, nil
}

// namespaces returns the valid namespaces of the run, once each.
func (r *run) namespaces() []string {
	var all []string
	for _, b := range r.bundles {
		if b.found.err == nil && b.namespace != "" && (len(all) == 0 || all[len(all)-1] != b.namespace) {
			all = append(all, b.namespace)
		}
	}
	return all
}

// have asks for every blob once in each namespace, several at a time.
func (r *run) have(ctx context.Context) (map[blobKey]content.Info, error) {
	var keys []blobKey
	asked := map[blobKey]bool{}
	for _, i := range r.images() {
		for _, n := range i.verdict.needs {
			k := blobKey{i.bundle.namespace, n.desc.Digest}
			if !asked[k] {
				asked[k] = true
				keys = append(keys, k)
			}
		}
	}
	infos := make([]content.Info, len(keys))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(r.o.Jobs)
	for n, k := range keys {
		g.Go(func() error {
			info, err := r.store.Content.Info(namespaces.WithNamespace(ctx, k.namespace), k.digest)
			if errdefs.IsNotFound(err) {
				return nil
			}
			infos[n] = info
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	have := map[blobKey]content.Info{}
	for n, k := range keys {
		if infos[n].Digest != "" {
			have[k] = infos[n]
		}
	}
	return have, nil
}

// pretend reports what an import would do.
func (r *run) pretend(d *decision) {
	for _, i := range d.work {
		i.report.Status = StatusImported
		i.report.Pinned = !r.o.NoPin
		i.warn("dry run: " + i.record.reason)
	}
}

// apply copies what is missing and names what is complete. A lease keeps the blobs meanwhile, and
// is made only when there is something to keep. What a killed import left is removed in any case.
func (r *run) apply(ctx context.Context, d *decision) {
	l := r.leases
	if err := l.clean(ctx, r.namespaces()); err != nil {
		r.warn("clean up after an import that was killed: " + err.Error())
	}
	r.remember(ctx, l)
	if len(d.work) > 0 {
		r.complete(ctx, d, l)
	}
	r.unpinMissing(ctx)
}

func (r *run) complete(ctx context.Context, d *decision, l *leaser) {
	r.fit(ctx, d)
	c := r.newCopier(d, l)
	r.doneWithout(d.work)
	c.heal(ctx, d.damaged)
	c.run(ctx)
	r.unpack(ctx, d.work, c)
	for n, i := range d.work {
		r.nameWhenComplete(ctx, i, c)
		if n+1 == len(d.work) || d.work[n+1].bundle != i.bundle {
			r.done(i.bundle)
		}
	}
}

// doneWithout settles the bundles that nothing has to be done for.
func (r *run) doneWithout(work []*image) {
	busy := map[*bundle]bool{}
	for _, i := range work {
		busy[i.bundle] = true
	}
	for _, b := range r.bundles {
		if !busy[b] {
			r.done(b)
		}
	}
}

// nameWhenComplete is the only place that writes an image's record.
func (r *run) nameWhenComplete(ctx context.Context, i *image, c *copier) {
	if r.o.FailFast {
		r.stopAtFailure()
	}
	if !i.wanted() {
		return
	}
	if err := c.outcome(i); err != nil {
		i.fail(err)
		return
	}
	if err := i.bundle.archive.Unchanged(); err != nil {
		i.bundle.fail(err)
		return
	}
	if err := r.writeRecord(ctx, i); err != nil {
		i.fail(err)
		return
	}
	i.report.Status = StatusImported
	i.report.Pinned = i.record.pinned()
	if i.record.reason != reasonAbsent {
		i.warn(i.record.reason)
	}
}

// requireStored compares the references that have to be there with the store.
func (r *run) requireStored(ctx context.Context) {
	if len(r.o.Require) == 0 {
		return
	}
	names := map[string]bool{}
	records, err := r.records(ctx)
	if err != nil {
		r.warn("list images: " + err.Error())
	}
	for k := range records {
		names[canonicalReference(k.name)] = true
	}
	r.require(names)
}
