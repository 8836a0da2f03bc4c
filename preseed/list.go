package preseed

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Listed is an image of the store that came from a bundle.
type Listed struct {
	Namespace string        `json:"namespace"`
	Name      string        `json:"name"`
	Digest    digest.Digest `json:"digest"`
	Bundle    string        `json:"bundle"`      // where it was imported from
	Gone      bool          `json:"bundle_gone"` // the bundle is not there any more
	Pinned    bool          `json:"pinned"`
	State     Status        `json:"state"` // ok or incomplete
	Reason    string        `json:"reason,omitempty"`
}

// List returns the images that bundles brought to the store, in order of namespace and name. Of the
// options it looks at Namespace ("" means all) and the platform that decides what is incomplete.
func List(ctx context.Context, s *Store, o Options) ([]Listed, error) {
	matcher, _, err := o.matcher()
	if err != nil {
		return nil, err
	}
	spaces := []string{o.Namespace}
	if o.Namespace == "" {
		if spaces, err = s.Namespaces(ctx); err != nil {
			return nil, fmt.Errorf("list namespaces: %w", err)
		}
	}
	all := []Listed{}
	for _, namespace := range spaces {
		ctx := namespaces.WithNamespace(ctx, namespace)
		records, err := s.Images.List(ctx)
		if err != nil {
			return nil, fmt.Errorf("list images of namespace %q: %w", namespace, err)
		}
		for _, img := range records {
			if img.Labels[SourceLabel] == "" {
				continue
			}
			all = append(all, listed(ctx, s, namespace, img, matcher))
		}
	}
	slices.SortFunc(all, func(a, b Listed) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return all, nil
}

func listed(ctx context.Context, s *Store, namespace string, img images.Image, m platforms.MatchComparer) Listed {
	l := Listed{
		Namespace: namespace, Name: img.Name, Digest: img.Target.Digest, Bundle: img.Labels[SourceLabel],
		Pinned: img.Labels[PinLabel] == PinValue, State: StatusOK,
	}
	l.Gone = l.Bundle != stream && !exists(l.Bundle)
	if err := complete(ctx, s, img.Target, m); err != nil {
		l.State, l.Reason = StatusIncomplete, err.Error()
	}
	return l
}

// complete looks for every blob of an image, which containerd's images.Check does not.
func complete(ctx context.Context, s *Store, target ocispec.Descriptor, m platforms.MatchComparer) error {
	children := images.LimitManifests(images.FilterPlatforms(images.ChildrenHandler(s.Content), m), m, 1)
	return images.Walk(ctx, images.HandlerFunc(func(ctx context.Context, d ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		info, err := s.Content.Info(ctx, d.Digest)
		switch {
		case errdefs.IsNotFound(err):
			return nil, fmt.Errorf("no blob %s", d.Digest)
		case err != nil:
			return nil, err
		case info.Size != d.Size:
			return nil, fmt.Errorf("blob %s of %d bytes, expected %d", d.Digest, info.Size, d.Size)
		}
		if err := probe(ctx, s, d); err != nil {
			return nil, fmt.Errorf("blob %s: %w", d.Digest, err)
		}
		return children(ctx, d)
	}), target)
}
