package preseed

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// LedgerLabel is on the records of images that came from an archive which cannot be looked into
// without reading all of it. It names a small blob that holds what the archive was found to hold,
// and keeps it from being collected as long as the image is there.
//
// The ledger lies in the store because there alone every import can write: online the importer may
// be confined to containerd's socket. Being content it is written whole or not at all, it goes
// with the store that it describes, and with the last image that needs it. Its loss costs time.
// Source of the prefix: containerd, core/metadata/gc.go.
const LedgerLabel = "containerd.io/gc.ref.content.seedbed-ledger"

const maxLedger = 8 << 20 // bytes of a ledger that is read

// ledger reads what the store says of a bundle that was read before. It is nil when there is
// nothing, or what there is cannot be read.
func (r *run) ledger(ctx context.Context, b *bundle) []byte {
	if r.store == nil || b.reader != nil {
		return nil
	}
	b.ledger = r.ledgerDigests(ctx)[key{b.namespace, absolute(b.path)}]
	if b.ledger == "" {
		return nil
	}
	blob, err := r.store.Content.ReaderAt(namespaces.WithNamespace(ctx, b.namespace), ocispec.Descriptor{Digest: b.ledger})
	if err != nil {
		return nil
	}
	defer blob.Close()
	if blob.Size() > maxLedger {
		return nil
	}
	data := make([]byte, blob.Size())
	if _, err := io.ReadFull(io.NewSectionReader(blob, 0, blob.Size()), data); err != nil || digest.FromBytes(data) != b.ledger {
		return nil
	}
	return data
}

// ledgerDigests finds the ledgers of all bundles, by namespace and path. The records are asked for
// once, and only when a bundle is costly to read.
func (r *run) ledgerDigests(ctx context.Context) map[key]digest.Digest {
	r.ledgersOnce.Do(func() {
		r.ledgers = map[key]digest.Digest{}
		records, err := r.records(ctx)
		if err != nil {
			return // said when the records are needed
		}
		for k, img := range records {
			if d, err := digest.Parse(img.Labels[LedgerLabel]); err == nil {
				r.ledgers[key{k.namespace, img.Labels[SourceLabel]}] = d
			}
		}
	})
	return r.ledgers
}

// remember writes a ledger for each bundle that had to be read whole, and names it in the records
// of those of its images that are not going to be written.
func (r *run) remember(ctx context.Context, l *leaser) {
	for _, b := range r.bundles {
		if b.archive == nil || b.failed() || b.archive.Restored {
			continue
		}
		if err := r.rememberBundle(ctx, b, l); err != nil {
			b.ledger = ""
			r.warn(b.path + ": it will be read whole again the next time: " + err.Error())
		}
	}
}

func (r *run) rememberBundle(ctx context.Context, b *bundle, l *leaser) error {
	b.ledger = ""
	data, err := b.archive.Ledger()
	if err != nil || data == nil {
		return err
	}
	ctx, err = l.context(namespaces.WithNamespace(ctx, b.namespace), b.namespace)
	if err != nil {
		return err
	}
	b.ledger = digest.FromBytes(data)
	if err := r.writeLedger(ctx, b.ledger, data); err != nil {
		return err
	}
	for _, i := range b.images {
		if i.report.Status != StatusUnchanged || i.record.found == nil || i.record.found.Labels[SourceLabel] != absolute(b.path) {
			continue
		}
		img := images.Image{Name: i.name, Labels: map[string]string{LedgerLabel: b.ledger.String()}}
		if _, err := r.store.Images.Update(ctx, img, "labels."+LedgerLabel); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) writeLedger(ctx context.Context, d digest.Digest, data []byte) error {
	c, ref, size := r.writer(), ingestRef(d), int64(len(data))
	w, there, err := c.open(ctx, ref, ocispec.Descriptor{Digest: d, Size: size})
	if errdefs.IsAlreadyExists(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if !there {
		_, err = c.send(ctx, w, bytes.NewReader(data), size, func(err error) error { return err })
	}
	if err == nil {
		err = w.Commit(ctx, size, d)
	}
	if err == nil || errdefs.IsAlreadyExists(err) {
		return nil
	}
	return errors.Join(err, c.abort(ctx, w, ref))
}
