package preseed

import (
	"context"
	"crypto/rand"
	"errors"
	"io"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"

	"seedbed/preseed/archive"
)

// keeper takes the large members of an archive that can be read only once to the store while they
// pass, before it is known which of them an image needs. The run's lease keeps them; what no image
// needs is collected when it ends.
type keeper struct {
	copier  *copier
	bundle  *bundle
	commits errgroup.Group
}

// kept is a piece on its way into the store.
type kept struct {
	archive.Piece
	ref   string        // of its ingest
	found digest.Digest // of its bytes, when done is closed
	err   error
	done  chan struct{}
}

// result waits for the commit, see [archive.Keep].
func (p *kept) result() (digest.Digest, error) {
	<-p.done
	return p.found, p.err
}

func (r *run) newKeeper(b *bundle) *keeper {
	k := &keeper{copier: r.writer(), bundle: b}
	k.commits.SetLimit(r.o.Jobs)
	return k
}

// wait waits for the commits that are under way.
func (k *keeper) wait() { _ = k.commits.Wait() }

// keep writes a piece. Its commit, for which the store waits for the disk, goes on while the next
// piece is read. A piece that the store has is not looked at.
func (k *keeper) keep(ctx context.Context, p archive.Piece, r io.Reader) (func() (digest.Digest, error), error) {
	ctx, err := k.copier.leases.context(namespaces.WithNamespace(ctx, k.bundle.namespace), k.bundle.namespace)
	if err != nil {
		return nil, err
	}
	piece := &kept{Piece: p, ref: "seedbed-" + rand.Text(), found: p.Digest, done: make(chan struct{})}
	if p.Digest != "" {
		piece.ref = ingestRef(p.Digest)
	}
	w, there, err := k.copier.open(ctx, piece.ref, ocispec.Descriptor{Digest: p.Digest, Size: p.Size})
	if errdefs.IsAlreadyExists(err) {
		close(piece.done)
		return piece.result, nil
	}
	if err != nil {
		return nil, err
	}
	if !there { // else another namespace has it, and the commit makes it known in this one
		if err := k.fill(ctx, w, p, r); err != nil {
			return nil, errors.Join(err, k.copier.abort(ctx, w, piece.ref))
		}
	}
	k.commits.Go(func() error {
		defer close(piece.done)
		piece.err = k.commit(ctx, w, piece)
		return nil
	})
	return piece.result, nil
}

func (k *keeper) fill(ctx context.Context, w content.Writer, p archive.Piece, r io.Reader) error {
	k.copier.progress.event(EventCopy, func(e *Event) { e.Bytes += p.Size })
	sent, err := k.copier.send(ctx, w, r, p.Size, func(err error) error { return err })
	k.copier.account(k.bundle, sent, 0)
	return err
}

// commit gives a piece its digest. When that is not the one that its name claims, the piece is
// thrown away, and whoever needs it is told what was found.
func (k *keeper) commit(ctx context.Context, w content.Writer, p *kept) error {
	if _, err := w.Status(); err != nil { // a daemon tells the digest with the status
		return errors.Join(err, k.copier.abort(ctx, w, p.ref))
	}
	found := w.Digest()
	if p.Digest == "" {
		p.found = found
	} else if found.Algorithm() == p.Digest.Algorithm() && found != p.Digest {
		p.found = found
		return k.copier.abort(ctx, w, p.ref)
	}
	err := w.Commit(ctx, p.Size, p.Digest)
	switch {
	case err == nil, errdefs.IsAlreadyExists(err):
		return nil
	case errdefs.IsFailedPrecondition(err): // a digest of an algorithm that the store reckons only now
		p.found, err = found, nil
	}
	return errors.Join(err, k.copier.abort(ctx, w, p.ref))
}

// hash takes the large members of an archive for runs that write nothing: it reads them for their
// digest.
func hash(_ context.Context, p archive.Piece, r io.Reader) (func() (digest.Digest, error), error) {
	algorithm := digest.Canonical
	if p.Digest != "" && p.Digest.Algorithm().Available() {
		algorithm = p.Digest.Algorithm()
	}
	digester := algorithm.Digester()
	if _, err := io.CopyBuffer(digester.Hash(), struct{ io.Reader }{r}, make([]byte, messageSize)); err != nil {
		return nil, err
	}
	return func() (digest.Digest, error) { return digester.Digest(), nil }, nil
}
