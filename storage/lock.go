package storage

import (
	"context"
	"fmt"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"
)

// lock takes the root's lock: an exclusive flock(2) on the directory itself, so there is no lock file to be left
// behind. It waits up to the given time and returns the function that unlocks, or an error that is [ErrLocked].
func (w *walker) lock(ctx context.Context, wait time.Duration) (unlock func(), err error) {
	dir, err := w.root.readable()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, max(wait, 0))
	defer cancel()
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		err = unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { dir.Close() }, nil
		}
		if err != unix.EWOULDBLOCK && err != unix.EINTR {
			dir.Close()
			return nil, &fs.PathError{Op: "lock", Path: w.hostPath, Err: err}
		}
		select {
		case <-ctx.Done():
			dir.Close()
			return nil, w.locked(ctx, wait)
		case <-time.After(pause):
		}
	}
}

// locked says why the lock was not taken: it is held, or the caller gave up.
func (w *walker) locked(ctx context.Context, wait time.Duration) error {
	if ctx.Err() == context.Canceled {
		return fmt.Errorf("lock %q: %w", w.hostPath, context.Canceled)
	}
	return &advised{
		fmt.Errorf("lock %q: waited %v: %w", w.hostPath, wait, ErrLocked),
		"try again when the other seedbed storage place has ended, or wait for it with --wait-lock",
	}
}
