package preseed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sync/errgroup"

	"seedbed/preseed/archive"
)

// openFiles is how many bundles have their file open at a time: well above the number of those that
// are read at once, and well below what a service may have open.
const openFiles = 16

// run is one import, check or verification.
type run struct {
	o        Options
	store    *Store // nil for a check
	report   *Report
	bundles  []*bundle
	progress progress
	roots    []string       // absolute paths of the sources
	sources  map[key]string // see sourceOf
	left     leaseMap       // leases of ours that could not be ended
	leases   *leaser        // nil when nothing is to be written
	files    *archive.Files // those of the bundles that are open

	snapshotter *Snapshotter // nil when nothing is unpacked

	ledgersOnce sync.Once
	ledgers     map[key]digest.Digest // see ledgerDigests
}

// newRun finds the bundles. It fails when a source cannot be read or an option makes no sense.
func newRun(sources []Source, o Options, mode Mode) (*run, error) {
	o = o.withDefaults()
	if _, _, err := o.matcher(); err != nil {
		return nil, err
	}
	if o.Name != "" {
		if _, err := dockerName(o.Name); err != nil {
			return nil, &OptionError{Option: "name", Value: o.Name, Err: errors.New("no valid image reference")}
		}
	}
	r := &run{o: o, files: archive.NewFiles(openFiles), report: &Report{Schema: Schema, Mode: mode, Started: time.Now(), Bundles: []*BundleReport{}}}
	r.progress.tell = o.Progress
	for _, s := range sources {
		if s.Reader == nil {
			r.roots = append(r.roots, absolute(s.Path))
		}
	}
	entries, err := find(sources, o, mode == ModeCheck)
	if err != nil {
		return nil, err
	}
	for _, f := range entries {
		b := &bundle{found: f, err: f.err, report: &BundleReport{Path: f.path, Namespace: f.namespace, clutter: f.skip != ""}}
		r.bundles = append(r.bundles, b)
		r.report.Bundles = append(r.report.Bundles, b.report)
	}
	r.progress.event(EventStart, func(e *Event) {
		for _, b := range r.bundles {
			if b.skip == "" {
				e.Bundles++
			}
		}
	})
	return r, nil
}

// index opens and judges every bundle, several at a time.
func (r *run) index(ctx context.Context, whole bool) {
	var g errgroup.Group
	g.SetLimit(r.o.Jobs)
	for _, b := range r.bundles {
		if b.skip != "" || b.err != nil {
			continue
		}
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				b.fail(err)
				return nil
			}
			r.open(ctx, b, whole)
			r.progress.event(EventRead, func(e *Event) { e.Bundle, e.Namespace = b.path, b.namespace })
			return nil
		})
	}
	_ = g.Wait()
}

// open reads a bundle's index. What can be read only once goes to the store on the way in an import;
// a verification must not mend what it is about to look at.
func (r *run) open(ctx context.Context, b *bundle, whole bool) {
	o := archive.Options{SpoolDir: r.o.SpoolDir, Files: r.files, Keep: hash, Ledger: func() []byte { return r.ledger(ctx, b) }}
	if r.leases != nil && r.report.Mode != ModeVerify {
		k := r.newKeeper(b)
		defer k.wait()
		o.Keep = k.keep
	}
	b.open(ctx, r.o, o, whole)
}

// images returns the images that are to be in the store, in the report's order.
func (r *run) images() []*image {
	var all []*image
	for _, b := range r.bundles {
		for _, i := range b.images {
			if i.wanted() {
				all = append(all, i)
			}
		}
	}
	return all
}

// kubernetes is the namespace of the kubelet's images.
const kubernetes = "k8s.io"

// key is what a record is stored under.
type key struct{ namespace, name string }

// settleNames finds bundles that give one name to different images. The last in lexical order has
// the name, as it would have after importing one by one; the others are told.
func (r *run) settleNames() {
	owner := map[key]*image{}
	for _, i := range r.images() {
		owner[key{i.bundle.namespace, i.name}] = i
	}
	for _, i := range r.images() {
		o := owner[key{i.bundle.namespace, i.name}]
		if o == i || o.verdict.target.Digest == i.verdict.target.Digest {
			continue
		}
		text := fmt.Sprintf("%s: %s gives %s another digest: %s here, %s there", i.bundle.path, o.bundle.path, quote(i.name), i.verdict.target.Digest, o.verdict.target.Digest)
		if r.o.Strict {
			conflict := &Error{Code: CodeConflict, Found: fmt.Sprintf("two images named %s, in %s and %s", quote(i.name), i.bundle.path, o.bundle.path), Advice: "remove one of the bundles"}
			i.fail(conflict)
			o.fail(conflict)
			continue
		}
		r.warn(text)
		if r.store != nil {
			i.report.Status = StatusUnchanged
		}
		i.warn("not stored, for " + o.bundle.path + " gives the name another digest: " + o.verdict.target.Digest.String())
	}
}

// stopAtFailure applies fail-fast: it marks the bundles after the first that failed as skipped.
func (r *run) stopAtFailure() {
	if !r.o.FailFast {
		return
	}
	failed := slices.IndexFunc(r.bundles, (*bundle).failed)
	if failed < 0 {
		return
	}
	for _, b := range r.bundles[failed+1:] {
		if b.report.Status == "" && b.skip == "" {
			b.report.Status, b.report.Reason = StatusSkipped, "not reached: "+r.bundles[failed].path+" failed"
			b.abandon()
		}
	}
}

func (b *bundle) failed() bool {
	return b.err != nil || slices.ContainsFunc(b.images, func(i *image) bool { return i.err != nil })
}

// abandon forgets the images of a bundle that is not reached.
func (b *bundle) abandon() { b.images, b.report.Images = nil, nil }

// strict makes failures of warnings about images: a name that is not what others look for, and
// artifacts.
func (r *run) strict() {
	for _, b := range r.bundles {
		for _, i := range b.images {
			switch {
			case i.err != nil || i.report.Reason == "":
			case r.o.Strict:
				i.fail(&Error{Code: CodeConflict, Found: i.report.Reason, Advice: "leave out --strict to take it as a warning"})
			default:
				r.warn(b.path + ": " + quote(i.report.Name) + ": " + i.report.Reason)
			}
		}
	}
}

func (r *run) warn(text string) { r.report.Warnings = append(r.report.Warnings, text) }

// finish closes the archives, settles every outcome and counts.
func (r *run) finish() *Report {
	for _, b := range r.bundles {
		r.done(b)
	}
	r.report.count()
	return r.report
}

// done closes a bundle and settles its outcome, once.
func (r *run) done(b *bundle) {
	if b.settled {
		return
	}
	b.settled = true
	b.close()
	b.settle()
	if b.report.clutter {
		return
	}
	r.progress.event(EventBundle, func(e *Event) {
		e.Bundle, e.Namespace, e.Status, e.Reason = b.path, b.namespace, b.report.Status, b.report.Reason
		e.BundlesDone++
	})
}

// sandbox warns when the node would have no image to make pods of.
func (r *run) sandbox() {
	if r.o.Sandbox == "" {
		return
	}
	any := false
	for _, i := range r.images() {
		if i.bundle.namespace != kubernetes {
			continue
		}
		if any = true; canonicalReference(i.name) == canonicalReference(r.o.Sandbox) {
			return
		}
	}
	found := "the sandbox image " + quote(r.o.Sandbox) + " of containerd's configuration is in no bundle of it"
	if !any {
		found = "no bundle has an image for it"
	}
	r.warn("namespace " + kubernetes + ": " + found + ": without a network no pod starts")
	if r.o.Strict {
		r.o.Require = append(slices.Clip(r.o.Require), r.o.Sandbox)
	}
}

// Check reads the bundles and says of each image whether it is whole: every blob that its platform
// needs is there and has its digest. It needs no store and no rights but to read. The error is the
// one that [Import] gives.
func Check(ctx context.Context, sources []Source, o Options) (*Report, error) {
	r, err := newRun(sources, o, ModeCheck)
	if err != nil {
		return nil, err
	}
	r.index(ctx, true)
	r.strict()
	r.settleNames()
	r.stopAtFailure()
	r.sandbox()
	names := map[string]bool{}
	for _, i := range r.images() {
		i.report.Status = StatusOK
		names[canonicalReference(i.name)] = true
	}
	for _, b := range r.bundles {
		if b.archive != nil {
			if err := b.archive.Unchanged(); err != nil {
				b.fail(err)
			}
		}
	}
	r.require(names)
	return r.finish(), ctx.Err()
}

// require compares the references that have to be there with those that are.
func (r *run) require(names map[string]bool) {
	for _, ref := range r.o.Require {
		r.report.Required = append(r.report.Required, Required{Ref: ref, Present: names[canonicalReference(ref)]})
	}
}
