package offline_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/namespaces"

	"seedbed/preseed/offline"
)

// TestOpenRemovesStrays: what a snapshotter that was killed has left is in the way of no snapshot,
// and what belongs to one stays.
func TestOpenRemovesStrays(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes snapshots")
	}
	for _, name := range []string{"overlayfs", "native"} {
		root := t.TempDir()
		ctx := namespaces.WithNamespace(t.Context(), "k8s.io")
		withSnapshotter(t, root, name, func(s snapshots.Snapshotter) {
			if _, err := s.Prepare(ctx, "kept", ""); err != nil {
				t.Fatal(err)
			}
		})
		dir := filepath.Join(root, "io.containerd.snapshotter.v1."+name, "snapshots")
		for _, stray := range []string{"2/fs", "new-123"} {
			if err := os.MkdirAll(filepath.Join(dir, stray), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		withSnapshotter(t, root, name, func(s snapshots.Snapshotter) {
			if _, err := s.Stat(ctx, "kept"); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if _, err := s.Prepare(ctx, "next", ""); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
			t.Errorf("%s: directories %v, error %v: want those of two snapshots", name, entries, err)
		}
	}
}

func withSnapshotter(t *testing.T, root, name string, use func(snapshots.Snapshotter)) {
	t.Helper()
	s, err := offline.Open(t.Context(), root, offline.Options{Snapshotter: name})
	if err != nil {
		t.Fatal(err)
	}
	found, err := s.Preseed().Snapshotter(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	use(found)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
