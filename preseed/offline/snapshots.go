package offline

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/containerd/containerd/v2/core/diff"
	"github.com/containerd/containerd/v2/core/snapshots"
	erofsdiff "github.com/containerd/containerd/v2/plugins/diff/erofs"
	"github.com/containerd/containerd/v2/plugins/snapshots/erofs"
	"github.com/containerd/containerd/v2/plugins/snapshots/native"
	"github.com/containerd/containerd/v2/plugins/snapshots/overlay"
	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"

	"seedbed/preseed"
)

// snapshotterDir begins the name of a snapshotter's directory below containerd's root.
const snapshotterDir = "io.containerd.snapshotter.v1."

// engine is the snapshotter that the store was opened with.
type engine struct {
	snapshots.Snapshotter
	name   string
	remove string // a directory that is removed when it is closed
}

// openEngine opens the snapshotter of a name below root as containerd's plugin for it does by
// default. One that is only looked at and is not there is an empty one.
func openEngine(ctx context.Context, root string, o Options) (*engine, error) {
	if o.Snapshotter == "" {
		return &engine{}, nil
	}
	e := &engine{name: o.Snapshotter}
	dir := filepath.Join(root, snapshotterDir+e.name)
	if _, err := os.Stat(dir); o.ReadOnly && errors.Is(err, fs.ErrNotExist) {
		if dir, err = os.MkdirTemp("", "seedbed-empty-"); err != nil {
			return nil, fmt.Errorf("make an empty snapshotter: %w", err)
		}
		e.remove = dir
	}
	if !o.ReadOnly {
		if err := removeStrays(ctx, dir); err != nil {
			return nil, err
		}
	}
	if err := e.open(dir); err != nil {
		return nil, errors.Join(err, e.removeTemporary())
	}
	return e, nil
}

// mkfs is the program that containerd's erofs differ runs for every layer.
const mkfs = "mkfs.erofs"

func (e *engine) open(dir string) (err error) {
	switch e.name {
	case "overlayfs":
		e.Snapshotter, err = overlay.NewSnapshotter(dir)
	case "native":
		e.Snapshotter, err = native.NewSnapshotter(dir)
	case "erofs":
		if _, err := exec.LookPath(mkfs); err != nil {
			return &preseed.OptionError{
				Option: "snapshotter", Value: e.name, Err: errors.New("it needs " + mkfs + ", which is not in PATH"),
				Advice: "install erofs-utils, or use overlayfs",
			}
		}
		e.Snapshotter, err = erofs.NewSnapshotter(dir)
	default:
		return &preseed.OptionError{Option: "snapshotter", Value: e.name, Err: errors.New("not one that works without containerd: overlayfs, native, erofs")}
	}
	if err != nil {
		return fmt.Errorf("open snapshotter %s: %w", e.name, err)
	}
	return nil
}

// all returns the snapshotter as containerd's metadata wants it.
func (e *engine) all() map[string]snapshots.Snapshotter {
	if e.Snapshotter == nil {
		return nil
	}
	return map[string]snapshots.Snapshotter{e.name: e.Snapshotter}
}

// Close ends the use of the snapshotter.
func (e *engine) Close() error {
	if e.Snapshotter == nil {
		return nil
	}
	return errors.Join(e.Snapshotter.Close(), e.removeTemporary())
}

func (e *engine) removeTemporary() error {
	if e.remove == "" {
		return nil
	}
	return os.RemoveAll(e.remove)
}

// snapshotter returns the snapshotter that the store was opened with, see [preseed.Store].
func (s *Store) snapshotter(_ context.Context, name string) (*preseed.Snapshotter, error) {
	if s.engine.Snapshotter == nil {
		return nil, &preseed.OptionError{Option: "snapshotter", Value: name, Err: errors.New("the store was opened without one")}
	}
	found := &preseed.Snapshotter{Snapshotter: s.db.Snapshotter(s.engine.name), Name: s.engine.name, Applier: noApplier{}}
	switch s.engine.name {
	case "overlayfs":
		found.Capabilities = []string{snapshots.RebaseCap}
	case "erofs":
		found.Capabilities = []string{snapshots.RebaseCap}
		found.Applier = erofsdiff.NewErofsDiffer(s.Content())
	}
	return found, nil
}

// noApplier refuses what can only be done by a containerd that runs.
type noApplier struct{ diff.Applier }

// removeOrphans removes the snapshots that the snapshotter has and the database does not know: what
// an import left that was killed. Their names would be in the way of new ones. A containerd that
// starts does the same.
func (s *Store) removeOrphans(ctx context.Context) error {
	if s.engine.Snapshotter == nil {
		return nil
	}
	known, err := s.knownSnapshots()
	if err != nil {
		return err
	}
	children := map[string][]string{"": nil}
	var roots []string
	err = s.engine.Walk(ctx, func(_ context.Context, info snapshots.Info) error {
		children[info.Parent] = append(children[info.Parent], info.Name)
		if !known[info.Name] && (info.Parent == "" || known[info.Parent]) {
			roots = append(roots, info.Name)
		}
		return nil
	})
	if err != nil && !errdefs.IsNotFound(err) { // which means that there are none yet
		return fmt.Errorf("list snapshots: %w", err)
	}
	for _, root := range roots {
		if err := s.removeBranch(ctx, root, children); err != nil {
			return fmt.Errorf("remove what a killed import left: %w", err)
		}
	}
	return nil
}

func (s *Store) removeBranch(ctx context.Context, name string, children map[string][]string) error {
	for _, child := range children[name] {
		if err := s.removeBranch(ctx, child, children); err != nil {
			return err
		}
	}
	return s.engine.Remove(ctx, name)
}

// knownSnapshots returns the names that the snapshotter has for the snapshots of the database.
// Source: containerd, core/metadata/buckets.go.
func (s *Store) knownSnapshots() (map[string]bool, error) {
	known := map[string]bool{}
	return known, s.db.View(func(tx *bolt.Tx) error {
		all := tx.Bucket([]byte("v1"))
		if all == nil {
			return nil
		}
		return all.ForEachBucket(func(namespace []byte) error {
			of := nested(all, namespace, []byte("snapshots"), []byte(s.engine.name))
			if of == nil {
				return nil
			}
			return of.ForEachBucket(func(key []byte) error {
				known[string(of.Bucket(key).Get([]byte("name")))] = true
				return nil
			})
		})
	})
}

func nested(b *bolt.Bucket, path ...[]byte) *bolt.Bucket {
	for _, name := range path {
		if b == nil {
			return nil
		}
		b = b.Bucket(name)
	}
	return b
}
