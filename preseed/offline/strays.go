package offline

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containerd/containerd/v2/core/snapshots/storage"
	"github.com/containerd/errdefs"
)

// removeStrays removes the directories of a snapshotter that its own database does not know. A
// snapshotter gives a directory its number before it commits, and a killed one leaves it there, in the
// way of the next snapshot of that number. No one may have the snapshotter open.
func removeStrays(ctx context.Context, dir string) error {
	entries, err := os.ReadDir(filepath.Join(dir, "snapshots"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	known, err := snapshotNumbers(ctx, filepath.Join(dir, "metadata.db"))
	if err != nil {
		return fmt.Errorf("open snapshotter at %q: %w", dir, err)
	}
	for _, e := range entries {
		if _, ok := known[e.Name()]; ok {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, "snapshots", e.Name())); err != nil {
			return fmt.Errorf("remove what a killed import left: %w", err)
		}
	}
	return nil
}

// snapshotNumbers returns the snapshots of a snapshotter's database by the names of their directories.
func snapshotNumbers(ctx context.Context, database string) (known map[string]string, err error) {
	store, err := storage.NewMetaStore(database)
	if err != nil {
		return nil, err
	}
	err = store.WithTransaction(ctx, false, func(ctx context.Context) error {
		known, err = storage.IDMap(ctx)
		return err
	})
	if errdefs.IsNotFound(err) { // there was no snapshot yet
		err = nil
	}
	return known, errors.Join(err, store.Close())
}
