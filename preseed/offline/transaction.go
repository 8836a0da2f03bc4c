package offline

import (
	"sync"

	bolt "go.etcd.io/bbolt"
)

// transaction runs all that containerd's metadata does in one transaction of the database, from
// Open to Close: a commit for each blob would sync the disk twice for each. A function that fails
// is not undone by itself; containerd's own change nothing before they can fail, or what they
// change (an ingest, a lease) is removed by whoever made it.
type transaction struct {
	mu      sync.Mutex // a bolt transaction is for one goroutine at a time
	tx      *bolt.Tx
	changed bool // there is something to commit
}

// View implements metadata.Transactor.
func (t *transaction) View(fn func(*bolt.Tx) error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return fn(t.tx)
}

// Update implements metadata.Transactor.
func (t *transaction) Update(fn func(*bolt.Tx) error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	err := fn(t.tx)
	t.changed = t.changed || err == nil
	return err
}

// end commits the transaction if it changed something.
func (t *transaction) end() error {
	if t.changed {
		return t.tx.Commit()
	}
	return t.tx.Rollback()
}
