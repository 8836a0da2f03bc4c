package preseed

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
)

// ownerLabel says which process made a lease, see owner.
const ownerLabel = "seedbed.owner"

// leaseTime is when the garbage collector may end a lease that nobody came back for.
const leaseTime = 24 * time.Hour

// cleanupTime is what containerd is given to take away what an import does not need any more, when
// the import has ended or was interrupted.
const cleanupTime = 5 * time.Second

// leaseMap has leases by namespace.
type leaseMap map[string][]leases.Lease

// leaser holds one lease in each namespace that something is written to: what is in the store
// without a name would be collected.
type leaser struct {
	store *Store
	mu    sync.Mutex
	held  map[string]leases.Lease // by namespace
	stale leaseMap                // of imports that were killed
}

func newLeaser(s *Store) *leaser {
	return &leaser{store: s, held: map[string]leases.Lease{}, stale: leaseMap{}}
}

// hold lets the run make leases, and has it take over those that an earlier attempt could not end.
// The returned function ends them.
func (r *run) hold(ctx context.Context) (release func()) {
	l := newLeaser(r.store)
	l.adopt(ctx, r.left)
	r.leases = l
	return func() { r.left = l.release(ctx) }
}

// context returns ctx with the namespace's lease, which is made when it is first asked for.
func (l *leaser) context(ctx context.Context, namespace string) (context.Context, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lease, ok := l.held[namespace]
	if !ok {
		var err error
		lease, err = l.store.Leases.Create(ctx, leases.WithID("seedbed-"+rand.Text()),
			leases.WithLabel(ownerLabel, owner(os.Getpid())), leases.WithExpiration(leaseTime))
		if err != nil {
			return nil, fmt.Errorf("make lease: %w", err)
		}
		l.held[namespace] = lease
	}
	return leases.WithLease(ctx, lease.ID), nil
}

// adopt takes over the leases of an earlier attempt of this process.
func (l *leaser) adopt(ctx context.Context, left leaseMap) {
	for namespace, all := range left {
		l.stale[namespace] = append(l.stale[namespace], all...)
		for _, lease := range all {
			_ = l.abortIngests(namespaces.WithNamespace(ctx, namespace), lease) // they end with the lease
		}
	}
}

// clean removes the ingests that killed imports left. Their leases end with ours, for until then
// they may keep blobs that this import is about to name.
func (l *leaser) clean(ctx context.Context, spaces []string) error {
	var errs []error
	for _, namespace := range spaces {
		ctx := namespaces.WithNamespace(ctx, namespace)
		all, err := l.store.Leases.List(ctx)
		if err != nil {
			return fmt.Errorf("list leases: %w", err)
		}
		for _, lease := range all {
			if !abandoned(lease.Labels[ownerLabel]) {
				continue
			}
			l.stale[namespace] = append(l.stale[namespace], lease)
			errs = append(errs, l.abortIngests(ctx, lease))
		}
	}
	return errors.Join(errs...)
}

func (l *leaser) abortIngests(ctx context.Context, lease leases.Lease) error {
	resources, err := l.store.Leases.ListResources(ctx, lease)
	if err != nil {
		return fmt.Errorf("list resources of lease %s: %w", lease.ID, err)
	}
	for _, r := range resources {
		if r.Type != "ingests" {
			continue
		}
		if err := discard(ctx, l.store.Content, r.ID); err != nil {
			return err
		}
	}
	return nil
}

// discard removes an ingest, if there is one. A daemon that has not yet noticed that its writer was
// closed may write to the directory while it is removed: then it is tried again.
func discard(ctx context.Context, store content.IngestManager, ref string) error {
	for pause := firstPause; ; pause *= 2 {
		err := store.Abort(ctx, ref)
		switch {
		case err == nil, errdefs.IsNotFound(err):
			return nil
		case !strings.Contains(err.Error(), syscall.ENOTEMPTY.Error()) || pause > lastPause:
			return fmt.Errorf("remove ingest %q: %w", ref, err)
		}
		time.Sleep(pause)
	}
}

// release ends our leases and the abandoned ones, also after ctx has ended. What cannot be ended
// expires; it is returned.
func (l *leaser) release(ctx context.Context) leaseMap {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	left := leaseMap{}
	for namespace, lease := range l.held {
		l.stale[namespace] = append(l.stale[namespace], lease)
	}
	for namespace, all := range l.stale {
		for _, lease := range all {
			err := l.store.Leases.Delete(namespaces.WithNamespace(ctx, namespace), lease)
			if err != nil && !errdefs.IsNotFound(err) {
				left[namespace] = append(left[namespace], lease)
			}
		}
	}
	return left
}

// owner identifies a process of this boot: boot id, PID namespace, PID and start time.
func owner(pid int) string {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	ns, _ := os.Readlink("/proc/self/ns/pid")
	return strings.Join([]string{strings.TrimSpace(string(boot)), ns, strconv.Itoa(pid), startTime(pid)}, "/")
}

// startTime is field 22 of proc_pid_stat(5), "" when there is no such process.
func startTime(pid int) string {
	stat, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	_, rest, _ := strings.Cut(string(stat), ") ")
	if fields := strings.Fields(rest); len(fields) > 19 {
		return fields[19]
	}
	return ""
}

// abandoned reports whether label names a process that is gone. One that cannot be seen from here,
// being of another PID namespace, is taken for alive: its lease expires.
func abandoned(label string) bool {
	part := strings.Split(label, "/")
	if len(part) != 4 {
		return false
	}
	now := strings.Split(owner(os.Getpid()), "/")
	if part[0] != now[0] {
		return true
	}
	pid, err := strconv.Atoi(part[2])
	return err == nil && part[1] == now[1] && label != owner(pid)
}
