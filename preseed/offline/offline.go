// Package offline opens containerd's image store on disk without containerd: its own content store
// and its own metadata database, so that a containerd which is started on the same root afterwards
// takes what is in it for its own.
package offline

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/metadata"
	"github.com/containerd/log"
	bolt "go.etcd.io/bbolt"
	boltErrors "go.etcd.io/bbolt/errors"

	"seedbed/preseed"
)

// ErrInUse says that another process, a containerd as a rule, has the database open.
var ErrInUse = errors.New("in use by another process")

// InUseError is [ErrInUse] for a root.
type InUseError struct{ Root string }

func (e *InUseError) Error() string {
	return fmt.Sprintf("open containerd root %q: %v", e.Root, ErrInUse)
}

// Unwrap returns ErrInUse.
func (e *InUseError) Unwrap() error { return ErrInUse }

// Hint says how the same is done while containerd runs.
func (e *InUseError) Hint() string {
	return "a containerd runs on this root: import through its socket (leave out --offline), or stop it"
}

// DamagedError is a metadata database that cannot be read, by containerd no more than from here.
type DamagedError struct {
	Path string
	Err  error
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("open containerd's database %q: it is damaged: %v", e.Path, e.Err)
}

// Unwrap returns the cause.
func (e *DamagedError) Unwrap() error { return e.Err }

// Hint is the next step.
func (e *DamagedError) Hint() string {
	return "restore the file, or move it away and import again: containers and images that are not from bundles are lost with it"
}

// isDamage reports whether bbolt refuses a file for what is in it.
func isDamage(err error) bool {
	return errors.Is(err, boltErrors.ErrInvalid) || errors.Is(err, boltErrors.ErrVersionMismatch) || errors.Is(err, boltErrors.ErrChecksum)
}

// Where containerd keeps its store below its root. Source: the ids of its content and metadata
// plugins, which name their directories.
const (
	contentDir   = "io.containerd.content.v1.content"
	metadataDir  = "io.containerd.metadata.v1.bolt"
	metadataFile = "meta.db"
)

// Options say how the store is opened.
type Options struct {
	// LockTimeout is how long another process may keep the database. 0 means 1 s. Without a bound
	// a running containerd would be waited for for ever.
	LockTimeout time.Duration
	// Snapshotter names the snapshotter that is opened as well: overlayfs, native or erofs. "" means
	// none.
	Snapshotter string
	// ReadOnly leaves the root as it is: to look, and for dry runs. A root without a store is an
	// empty one then.
	ReadOnly bool
}

func (o Options) withDefaults() Options {
	if o.LockTimeout <= 0 {
		o.LockTimeout = time.Second
	}
	return o
}

// Store is an image store that this process has for itself until Close, which alone makes durable
// what was changed. Without it, or when the power fails before its end, the store is as it was.
type Store struct {
	bolt    *bolt.DB
	db      *metadata.DB
	engine  *engine
	blobs   *blobs
	changes *transaction // nil for a read-only store
	remove  string       // directory that is removed by Close: the store in the place of one that is absent
}

// Open opens the store below root, containerd's root directory, and makes what is not there yet
// with the modes that containerd uses. The error is an [*InUseError] when another process has the
// store, or the system's own.
func Open(ctx context.Context, root string, o Options) (*Store, error) {
	o = o.withDefaults()
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("open containerd root: %w", err)
	}
	if o.ReadOnly {
		info, err := os.Stat(filepath.Join(root, metadataDir, metadataFile))
		if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode().IsRegular() && info.Size() == 0 {
			return openEmpty(ctx, o)
		}
	} else if err := makeDirs(root); err != nil {
		return nil, fmt.Errorf("open containerd root: %w", err)
	}
	return openRoot(ctx, root, o)
}

// openEmpty opens a store in a temporary directory.
func openEmpty(ctx context.Context, o Options) (*Store, error) {
	dir, err := os.MkdirTemp("", "seedbed-empty-")
	if err != nil {
		return nil, fmt.Errorf("make an empty store: %w", err)
	}
	o.ReadOnly = false
	s, err := Open(ctx, dir, o)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s.remove = dir
	return s, nil
}

func openRoot(ctx context.Context, root string, o Options) (*Store, error) {
	db, err := openDatabase(filepath.Join(root, metadataDir, metadataFile), o)
	if errors.Is(err, boltErrors.ErrTimeout) {
		return nil, &InUseError{Root: root}
	}
	if isDamage(err) {
		return nil, &DamagedError{Path: filepath.Join(root, metadataDir, metadataFile), Err: err}
	}
	if err != nil {
		return nil, fmt.Errorf("open containerd's database: %w", err)
	}
	s, err := open(ctx, root, db, o)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

func open(ctx context.Context, root string, db *bolt.DB, o Options) (*Store, error) {
	// containerd's libraries log to standard error what is no business of an import's reader: that
	// the file system has no fs-verity, say. What matters comes back as errors.
	if err := log.SetLevel("fatal"); err != nil {
		return nil, err
	}
	files, err := openBlobs(filepath.Join(root, contentDir), o.ReadOnly)
	if err != nil {
		return nil, fmt.Errorf("open content store: %w", err)
	}
	engine, err := openEngine(ctx, root, o)
	if err != nil {
		return nil, err
	}
	s := &Store{bolt: db, blobs: files, engine: engine}
	if o.ReadOnly {
		s.db = metadata.NewDB(db, files, engine.all())
		return s, nil
	}
	if err := s.begin(ctx); err != nil {
		return nil, errors.Join(err, engine.Close())
	}
	return s, nil
}

// begin begins the transaction of all that is going to be written, and makes the store fit for it.
func (s *Store) begin(ctx context.Context) error {
	tx, err := s.bolt.Begin(true)
	if err != nil {
		return fmt.Errorf("open containerd's database: %w", err)
	}
	s.changes = &transaction{tx: tx}
	s.db = metadata.NewDB(s.changes, s.blobs, s.engine.all())
	if err := s.prepare(ctx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return nil
}

// prepare brings the database's form up to date and removes what killed imports left.
func (s *Store) prepare(ctx context.Context) error {
	if err := s.db.Init(ctx); err != nil {
		return fmt.Errorf("open containerd's database: %w", err)
	}
	if err := removeLinks(filepath.Dir(filepath.Dir(s.bolt.Path()))); err != nil {
		return err
	}
	return s.removeOrphans(ctx)
}

// makeDirs makes the directories with containerd's modes, exactly: a umask that hides the content
// from other users of the host would hide it from containerd in a user namespace.
func makeDirs(root string) error {
	if err := makeDir(root, 0o711); err != nil {
		return err
	}
	if err := makeDir(filepath.Join(root, contentDir), 0o755); err != nil {
		return err
	}
	return makeDir(filepath.Join(root, metadataDir), 0o711)
}

func makeDir(path string, mode os.FileMode) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(path, mode); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}

// openDatabase uses the options of containerd's plugins/metadata, but for the timeout.
func openDatabase(path string, o Options) (*bolt.DB, error) {
	options := *bolt.DefaultOptions
	options.NoFreelistSync = true
	options.NoStatistics = true
	options.Timeout = o.LockTimeout
	options.ReadOnly = o.ReadOnly
	return bolt.Open(path, 0o644, &options)
}

// Preseed returns the store as an import wants it.
func (s *Store) Preseed() *preseed.Store {
	return &preseed.Store{
		Content:     s.Content(),
		Images:      metadata.NewImageStore(s.db),
		Leases:      metadata.NewLeaseManager(s.db),
		Namespaces:  s.namespaces,
		Probe:       s.probe,
		Purge:       s.purge,
		Snapshotter: s.snapshotter,
		Link:        s.link,
		Free:        func(context.Context) (int64, error) { return preseed.FreeBytes(filepath.Dir(s.bolt.Path())) },
		Offline:     true,
	}
}

// Content returns the content store, which every namespace sees its own part of.
func (s *Store) Content() content.Store { return s.db.ContentStore() }

func (s *Store) namespaces(ctx context.Context) (names []string, err error) {
	err = s.db.View(func(tx *bolt.Tx) error {
		names, err = metadata.NewNamespaceStore(tx).List(ctx)
		return err
	})
	return names, err
}

// Close makes everything durable and ends the use of the store: first the blobs, by one sync of the
// file system, then their names, then in one transaction all that the database says of them. What
// was left without a name is collected by containerd when it starts: it knows its snapshots, which
// belong to the same graph.
func (s *Store) Close() error {
	err := errors.Join(s.settle(), s.bolt.Close(), s.engine.Close())
	if s.remove != "" {
		err = errors.Join(err, os.RemoveAll(s.remove))
	}
	return err
}

func (s *Store) settle() error {
	switch {
	case s.changes == nil:
		return nil
	case !s.changes.changed:
		return errors.Join(s.blobs.close(), s.changes.end())
	}
	if err := s.blobs.settle(); err != nil {
		return errors.Join(fmt.Errorf("sync the store: %w", err), s.changes.tx.Rollback())
	}
	if err := s.changes.end(); err != nil {
		return fmt.Errorf("commit to containerd's database: %w", err)
	}
	return nil
}
