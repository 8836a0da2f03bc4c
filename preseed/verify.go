package preseed

import "context"

// Verify compares the store with the bundles. An image that the store has as its bundle describes
// it is ok; one that is absent, lacks its pin or a blob, or has one that is damaged on disk, is
// incomplete: every blob is read and hashed. Nothing is written unless Options.Repair is set: then
// what is incomplete is imported again. The error is the one that [Import] gives.
func Verify(ctx context.Context, s *Store, sources []Source, o Options) (*Report, error) {
	r, err := newRun(sources, o, ModeVerify)
	if err != nil {
		return nil, err
	}
	r.store = s
	defer r.keepAsking(ctx)()
	if err := r.findSnapshotter(ctx); err != nil {
		return nil, err
	}
	if o.Repair {
		release := r.hold(ctx)
		defer release()
	}
	r.index(ctx, false)
	r.strict()
	r.settleNames()
	r.sandbox()
	d := r.decide(ctx, rehash)
	r.approve()
	if o.Repair {
		r.apply(ctx, d)
	} else {
		d.refuse()
	}
	r.requireStored(ctx)
	return r.finish(), ctx.Err()
}

// approve says of what needs nothing that it was looked at and is good.
func (r *run) approve() {
	for _, b := range r.bundles {
		for _, i := range b.images {
			if i.report.Status == StatusUnchanged {
				i.report.Status = StatusOK
			}
		}
	}
}

// refuse says of what the store lacks that it does.
func (d *decision) refuse() {
	for _, i := range d.work {
		i.report.Status = StatusIncomplete
		i.warn(i.record.reason)
	}
}
