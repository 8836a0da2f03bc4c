package preseed

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Labels of an image record.
const (
	// PinLabel with [PinValue] keeps an image from the kubelet's garbage collection. Source:
	// containerd, internal/cri/labels.
	PinLabel = "io.cri-containerd.pinned"
	PinValue = "pinned"
	// SourceLabel holds the path of the bundle that an image was imported from.
	SourceLabel = "seedbed.source"

	maxLabel = 4096 // bytes of key and value together that containerd accepts
)

// record is what the store has under an image's name, beside what it is to have.
type record struct {
	found  *images.Image // nil when there is none
	labels map[string]string
	reason string // why the store is not in the wanted state; "" when it is
}

const reasonAbsent = "not in the store"

func (r record) pinned() bool {
	return r.labels[PinLabel] == PinValue || r.found != nil && r.found.Labels[PinLabel] == PinValue
}

// compare says what the store lacks of an image.
func (r *run) compare(i *image, d *decision) record {
	want := record{labels: r.labels(i)}
	found, ok := d.records[key{i.bundle.namespace, i.name}]
	if !ok {
		want.reason = reasonAbsent
		return want
	}
	want.found = &found
	if from := found.Labels[SourceLabel]; want.labels[SourceLabel] == stream && found.Target.Digest == i.verdict.target.Digest && exists(from) {
		want.labels[SourceLabel] = from // the file's: they would take it from each other in turn
	}
	want.reason = r.difference(i, want, d)
	return want
}

func (r *run) difference(i *image, want record, d *decision) string {
	target := i.verdict.target
	if want.found.Target.Digest != target.Digest || want.found.Target.MediaType != target.MediaType {
		return "the store has another digest under this name: " + want.found.Target.Digest.String()
	}
	for _, n := range i.verdict.needs {
		info, ok := d.have[blobKey{i.bundle.namespace, n.desc.Digest}]
		if !ok || info.Size != n.desc.Size {
			return "not in the store: blob " + n.desc.Digest.String()
		}
		if err := d.damaged[n.desc.Digest]; err != nil {
			return fmt.Sprintf("damaged in the store: blob %s: %s", n.desc.Digest, err)
		}
		if len(newLabels(info.Labels, n.labels)) > 0 {
			return "not protected from garbage collection: what is below " + n.desc.Digest.String()
		}
	}
	if want.labels[PinLabel] != "" && want.found.Labels[PinLabel] != PinValue {
		return "not pinned"
	}
	if want.found.Labels[SourceLabel] != want.labels[SourceLabel] {
		return "not labelled with its bundle"
	}
	if r.o.DigestRefs && d.records[key{i.bundle.namespace, digestRef(i)}].Target.Digest != target.Digest {
		return "not in the store under its digest"
	}
	return ""
}

// labels returns the labels that an image's record is to have, whatever others it has.
func (r *run) labels(i *image) map[string]string {
	labels := map[string]string{}
	if !r.o.NoPin {
		labels[PinLabel] = PinValue
	}
	if source := r.sourceOf(i); len(SourceLabel)+len(source) <= maxLabel {
		labels[SourceLabel] = source
	}
	return labels
}

// stream is the source of what came from a reader.
const stream = "-"

// sourceOf returns the bundle that counts as an image's source: of several that hold the same
// image the last in lexical order, so that a second run finds nothing to change, and a file rather
// than a stream, which nobody can look for later.
func (r *run) sourceOf(i *image) string {
	if r.sources == nil {
		r.sources = map[key]string{}
		for _, i := range r.images() {
			k := key{i.bundle.namespace, i.name}
			if i.bundle.reader == nil || r.sources[k] == "" {
				r.sources[k] = i.bundle.source()
			}
		}
	}
	return r.sources[key{i.bundle.namespace, i.name}]
}

// writeRecord names an image whose blobs are all in the store, and merges the labels into those
// that are there.
func (r *run) writeRecord(ctx context.Context, i *image) error {
	ctx = namespaces.WithNamespace(ctx, i.bundle.namespace)
	names := []string{i.name}
	if r.o.DigestRefs {
		names = append(names, digestRef(i))
	}
	for _, name := range names {
		img := images.Image{Name: name, Target: recordTarget(i.verdict.target), Labels: i.allLabels()}
		if err := upsert(ctx, r.store.Images, img); err != nil {
			return err
		}
	}
	return nil
}

// allLabels adds the ledger to the labels that a record is to have, or takes away an old one.
func (i *image) allLabels() map[string]string {
	labels := maps.Clone(i.record.labels)
	switch {
	case i.bundle.ledger != "":
		labels[LedgerLabel] = i.bundle.ledger.String()
	case i.record.found != nil && i.record.found.Labels[LedgerLabel] != "":
		labels[LedgerLabel] = ""
	}
	return labels
}

// recordTarget keeps of a descriptor what containerd keeps in a record.
func recordTarget(d ocispec.Descriptor) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size, Annotations: d.Annotations, Platform: d.Platform}
}

// upsert updates the target and the labels of a record, or creates it. Labels that are not named
// stay: CRI keeps its own there.
func upsert(ctx context.Context, store images.Store, img images.Image) error {
	fields := []string{"target"}
	for _, label := range slices.Sorted(maps.Keys(img.Labels)) {
		fields = append(fields, "labels."+label)
	}
	_, err := store.Update(ctx, img, fields...)
	if !errdefs.IsNotFound(err) {
		return err
	}
	_, err = store.Create(ctx, img)
	if errdefs.IsAlreadyExists(err) {
		_, err = store.Update(ctx, img, fields...)
	}
	return err
}

// digestRef is an image's name with its digest in the place of the tag.
func digestRef(i *image) string {
	name, _, _ := strings.Cut(i.name, "@")
	if colon := strings.LastIndexByte(name, ':'); colon > strings.LastIndexByte(name, '/') {
		name = name[:colon]
	}
	return name + "@" + i.verdict.target.Digest.String()
}

// newLabels returns the garbage collector's labels of want whose blobs have does not refer to yet,
// under keys that are free: a reference that another import made is never replaced.
func newLabels(have, want map[string]string) map[string]string {
	refs := map[string]bool{}
	for k, v := range have {
		if strings.HasPrefix(k, gcContent) {
			refs[v] = true
		}
	}
	added := map[string]string{}
	for k, v := range want {
		if refs[v] {
			continue
		}
		for have[k] != "" || added[k] != "" {
			k += ".seedbed"
		}
		added[k] = v
	}
	return added
}

// unpinMissing takes the pin from images that came from below the run's sources and whose bundle is
// gone from the disk. It looks into every namespace: a bundle may have gone with its directory.
func (r *run) unpinMissing(ctx context.Context) {
	if !r.o.UnpinMissing {
		return
	}
	all, err := r.store.Namespaces(ctx)
	for _, namespace := range all {
		if err == nil {
			err = r.unpinNamespace(namespaces.WithNamespace(ctx, namespace))
		}
	}
	if err != nil {
		r.warn("unpin images of bundles that are gone: " + err.Error())
	}
}

func (r *run) unpinNamespace(ctx context.Context) error {
	list, err := r.store.Images.List(ctx)
	if err != nil {
		return err
	}
	for _, img := range list {
		source := img.Labels[SourceLabel]
		if img.Labels[PinLabel] != PinValue || !r.covers(source) || exists(source) {
			continue
		}
		img.Labels = map[string]string{PinLabel: ""}
		if _, err := r.store.Images.Update(ctx, img, "labels."+PinLabel); err != nil {
			return err
		}
	}
	return nil
}

// covers reports whether a path is one of the run's sources or lies below one.
func (r *run) covers(path string) bool {
	return filepath.IsAbs(path) && slices.ContainsFunc(r.roots, func(root string) bool {
		return path == root || strings.HasPrefix(path, strings.TrimSuffix(root, "/")+"/")
	})
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// source is what the records of a bundle's images have for their source.
func (b *bundle) source() string {
	if b.reader != nil {
		return stream
	}
	return absolute(b.path)
}

// absolute makes a path that means the same whatever the working directory is.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}
