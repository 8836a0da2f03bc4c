package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// bench is one run of the whole: the corpus, the programs and the stores that its rows share.
type bench struct {
	options
	log      io.Writer
	programs programs
	corpus   corpus
	disk     string  // directory for what is written, on the file system of the corpus; removed at the end
	short    string  // directory for sockets
	ram      string  // a mounted tmpfs; "" where nothing asked for one
	online   *daemon // its root on the disk; nil where nothing asked for it
	fast     *daemon // its root on the tmpfs; nil likewise
	stages   *daemon // its root on the disk, running only inside of what is measured
}

// open makes what the rows need.
func (b *bench) open(ctx context.Context, rows []row) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("start containerd: needs root")
	}
	if b.programs, err = build(ctx, filepath.Join(b.dir, "bin"), b.seedbed); err != nil {
		return err
	}
	if b.corpus, err = openCorpus(ctx, b.dir, sizes(b.quick), b.log); err != nil {
		return err
	}
	if b.disk, err = os.MkdirTemp(b.dir, "run-"); err != nil {
		return err
	}
	if b.short, err = os.MkdirTemp("", "bench-"); err != nil {
		return err
	}
	need := map[site]bool{}
	for _, r := range rows {
		need[r.site] = true
	}
	return b.openSites(ctx, need)
}

// openSites prepares the daemons of the sites that are needed and starts those that run all the time.
func (b *bench) openSites(ctx context.Context, need map[site]bool) (err error) {
	if need[siteOnline] {
		if b.online, err = newDaemon(b.programs, filepath.Join(b.disk, "online"), filepath.Join(b.short, "o")); err != nil {
			return err
		}
		if err := b.online.start(ctx); err != nil {
			return err
		}
	}
	if need[siteOffline] {
		if b.stages, err = newDaemon(b.programs, filepath.Join(b.disk, "offline"), filepath.Join(b.short, "s")); err != nil {
			return err
		}
	}
	if need[siteTmpfs] {
		return b.openTmpfs(ctx)
	}
	return nil
}

// openTmpfs mounts a tmpfs and starts a daemon on it.
func (b *bench) openTmpfs(ctx context.Context) (err error) {
	ram := filepath.Join(b.short, "ram")
	if err := os.Mkdir(ram, 0o700); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", ram, "tmpfs", 0, "size=4g"); err != nil {
		return fmt.Errorf("mount tmpfs at %q: %w", ram, err)
	}
	b.ram = ram
	if b.fast, err = newDaemon(b.programs, filepath.Join(ram, "root"), filepath.Join(b.short, "f")); err != nil {
		return err
	}
	return b.fast.start(ctx)
}

// close stops the daemons and removes what was written.
func (b *bench) close() error {
	var errs []error
	for _, d := range []*daemon{b.online, b.fast, b.stages} {
		if d != nil {
			errs = append(errs, d.stop())
		}
	}
	if b.ram != "" {
		errs = append(errs, unix.Unmount(b.ram, unix.MNT_DETACH))
	}
	for _, dir := range []string{b.disk, b.short} {
		if dir != "" {
			errs = append(errs, os.RemoveAll(dir))
		}
	}
	return errors.Join(errs...)
}

// measureAll measures row after row. What is wrong with one row stands in its result and does not stop the others.
func (b *bench) measureAll(ctx context.Context, rows []row) (*report, error) {
	rep := &report{
		Started: time.Now().UTC().Truncate(time.Second), Quick: b.quick, Rounds: b.rounds,
		Seedbed: revision(b.programs.seedbed), Machine: describeMachine(b.dir, b.containerdVersion(ctx)),
	}
	for _, r := range rows {
		fmt.Fprintf(b.log, "%s: ", r.id)
		result := b.measureRow(ctx, r)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		fmt.Fprintln(b.log, result.brief())
		rep.Rows = append(rep.Rows, result)
	}
	return rep, nil
}

// measureRow runs both programs alternately, the other one first in every second round.
func (b *bench) measureRow(ctx context.Context, r row) result {
	res := result{ID: r.id, Case: r.title, Baseline: r.baseline, CPU: r.cpu, Bar: r.bar, Limit: r.limit.Seconds(), MemoryLimit: r.memory}
	if err := b.corpus.warm(r.forms...); err != nil {
		res.fail(err)
		return res
	}
	for round := range b.rounds {
		sides := []func() error{
			func() error { return res.Seedbed.run(ctx, r.seedbed, b.store(r.site)) },
			func() error { return res.Peer.run(ctx, r.peer, b.store(r.site)) },
		}
		if round%2 == 1 {
			sides[0], sides[1] = sides[1], sides[0]
		}
		for _, side := range sides {
			if err := side(); err != nil {
				res.fail(err)
				return res
			}
		}
		fmt.Fprint(b.log, ".")
	}
	res.settle()
	if r.after != nil && res.Status != statusUnmeasured {
		if err := r.after(ctx, &res); err != nil {
			res.fail(err)
		}
	}
	return res
}

// store is the containerd root that a row of the site fills; "" for none.
func (b *bench) store(s site) string {
	switch s {
	case siteOnline:
		return b.online.root
	case siteTmpfs:
		return b.fast.root
	case siteOffline:
		return b.stages.root
	}
	return ""
}

// run prepares and measures one run of a contender. What is in the store afterwards is for the comparison: a program
// that stores less is not faster.
func (s *series) run(ctx context.Context, c contender, store string) error {
	if c.prepare != nil {
		if err := c.prepare(ctx); err != nil {
			return fmt.Errorf("prepare: %w", err)
		}
	}
	one, err := c.run(ctx)
	if err != nil {
		return err
	}
	for _, blob := range blobs(store) {
		one.Stored += blob.Size()
	}
	s.samples = append(s.samples, one)
	return nil
}

// containerdVersion is what the daemon says of itself.
func (b *bench) containerdVersion(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, b.programs.containerd, "--version").Output()
	words := strings.Fields(string(out)) // containerd, its package, its version, its revision
	if err != nil || len(words) < 3 {
		return "containerd of an unknown version"
	}
	version, _, _ := strings.Cut(words[2], "+")
	return "containerd " + version
}
