package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// row is one line of the table: seedbed and what people use today, at the same job.
type row struct {
	id       string
	title    string
	baseline string        // the peer, in words
	bar      float64       // seedbed's wall time over the peer's may be this; 0: no bar
	cpu      bool          // the bar is one of CPU time
	limit    time.Duration // seedbed's wall time may be this; 0: no limit
	memory   int64         // seedbed's peak memory may be this, in bytes; 0: no limit
	site     site
	forms    []string // of the corpus, that are in the page cache before the first run
	seedbed  contender
	peer     contender
	after    func(context.Context, *result) error // looks closer when the row is measured; may be nil
}

// contender is one side of a row.
type contender struct {
	prepare func(context.Context) error // not measured; may be nil
	run     func(context.Context) (sample, error)
}

// site is where a row happens.
type site int

const (
	siteNone    site = iota // without containerd
	siteOnline              // the running containerd
	siteTmpfs               // the running containerd whose root is on a tmpfs
	siteOffline             // a containerd that starts and stops while it is measured
)

// selected returns the rows that -run wants.
func (b *bench) selected() []row {
	var rows []row
	for _, group := range [][]row{b.coldRows(), b.againRows(), b.compressedRows(), b.offlineRows(), b.unpackRows(), b.storageRows(), b.pumpRows(), b.logRows()} {
		for _, r := range group {
			if b.run.MatchString(r.id) {
				rows = append(rows, r)
			}
		}
	}
	return rows
}

const (
	memoryBar           = 64 * mib
	memoryBarCompressed = 96 * mib
)

// coldRows import into the empty store of a running containerd.
func (b *bench) coldRows() []row {
	const peer = "`ctr images import --local --no-unpack`"
	with := func(id, title, baseline, form string, bar float64) row {
		return row{
			id: id, title: title, baseline: baseline, bar: bar, memory: memoryBar, site: siteOnline, forms: []string{form},
			seedbed: contender{b.empty, b.seedbedImport(form)},
			peer:    contender{b.empty, b.ctrImport(form)},
			after:   b.traceOnline(form, b.empty),
		}
	}
	return []row{
		with("online-single", "one cold bundle, online", peer, formSingle, 0.60),
		with("online-many", "20 cold bundles, online", "the same in a loop", formMany, 0.065),
		with("online-merged", "one merged archive, cold", peer, formMerged, 0.60),
		with("online-docker", "one cold docker archive, online", peer, formSingleDocker, 0),
		with("online-docker-merged", "one merged docker archive, cold", peer, formMergedDocker, 0),
	}
}

// againRows import what is there already, as at every boot but the first.
func (b *bench) againRows() []row {
	again := row{
		id: "online-again", title: "20 bundles, all there, every blob's presence checked", baseline: "the loop",
		bar: 0.005, limit: 120 * time.Millisecond, memory: memoryBar, site: siteOnline, forms: []string{formMany},
		seedbed: contender{b.holding(formMany), b.seedbedImport(formMany)},
		peer:    contender{b.holding(formMany), b.ctrImport(formMany)},
		after:   b.traceOnline(formMany, b.holding(formMany)),
	}
	changed := row{
		id: "online-changed", title: "20 bundles, one changed", baseline: "the loop",
		bar: 0.007, memory: memoryBar, site: siteOnline, forms: []string{formMany, formChanged},
		seedbed: contender{b.changing(formMany, formChanged), b.seedbedImport(formCurrent)},
		peer:    contender{b.changing(formMany, formChanged), b.ctrImport(formCurrent)},
		after:   b.traceOnline(formCurrent, b.changing(formMany, formChanged)),
	}
	docker := row{
		id: "online-docker-again", title: "one docker archive, all there", baseline: "`ctr images import --local --no-unpack`",
		memory: memoryBar, site: siteOnline, forms: []string{formSingleDocker},
		seedbed: contender{b.holding(formSingleDocker), b.seedbedImport(formSingleDocker)},
		peer:    contender{b.holding(formSingleDocker), b.ctrImport(formSingleDocker)},
	}
	return []row{again, changed, docker}
}

// compressedRows import archives that are compressed from outside.
func (b *bench) compressedRows() []row {
	cold := func(id, form, tool string, bar float64) row {
		return row{
			id: id, title: "merged ." + "tar." + form + ", cold", baseline: "`" + tool + " -dc` piped into `ctr --local`",
			bar: bar, memory: memoryBarCompressed, site: siteOnline, forms: []string{form},
			seedbed: contender{b.empty, b.seedbedImport(form)},
			peer:    contender{b.empty, b.ctrImportPiped(form, tool)},
			after:   b.traceOnline(form, b.empty),
		}
	}
	again := row{
		id: "online-zst-again", title: "merged .tar.zst, again", baseline: "the default `ctr images import --no-unpack`",
		bar: 0.05, memory: memoryBarCompressed, site: siteOnline, forms: []string{formZstd},
		seedbed: contender{b.holding(formZstd), b.seedbedImport(formZstd)},
		peer:    contender{b.holding(formZstd), b.ctrImport(formZstd, "--no-unpack")},
	}
	return []row{cold("online-zst", formZstd, "zstd", 0.80), cold("online-gz", formGzip, "gzip", 0.65), again}
}

// offlineRows fill the root of a containerd that does not run; the peer has to start it and to stop it.
func (b *bench) offlineRows() []row {
	with := func(id, title, baseline, form, peerForm string, bar float64, flags ...string) row {
		return row{
			id: id, title: title, baseline: baseline, bar: bar, memory: memoryBar, site: siteOffline, forms: []string{form, peerForm},
			seedbed: contender{b.bare, b.seedbedOffline(form, flags...)},
			peer:    contender{b.bare, b.ctrStaged(peerForm)},
			after:   b.traceOffline(form, flags...),
		}
	}
	const peer = "start containerd + ctr + stop"
	link := with("offline-link", "layout directory, `--offline --link`", peer, formLayout, formSingle, 0.06, "--link")
	link.seedbed.run = b.linking(link.seedbed.run)
	return []row{
		with("offline-single", "one cold bundle, `--offline`", peer, formSingle, formSingle, 0.18),
		with("offline-many", "20 cold bundles, `--offline`", "start + ctr on the merged archive + stop", formMany, formMerged, 0.14),
		link,
	}
}

// unpackRows unpack too. They do it on a tmpfs, for on ext4 one program's time varies threefold from run to run.
func (b *bench) unpackRows() []row {
	return []row{{
		id: "unpack", title: "`--unpack`, one cold bundle, containerd's root on tmpfs", baseline: "the default `ctr images import`",
		bar: 0.45, memory: memoryBar, site: siteTmpfs, forms: []string{formSingle},
		seedbed: contender{b.emptyTmpfs, b.seedbedUnpack},
		peer:    contender{b.emptyTmpfs, b.ctrUnpack},
	}}
}

// empty empties the store of the running containerd.
func (b *bench) empty(ctx context.Context) error { return b.online.empty(ctx) }

func (b *bench) emptyTmpfs(ctx context.Context) error { return b.fast.empty(ctx) }

// bare removes the offline root.
func (b *bench) bare(context.Context) error {
	if err := os.RemoveAll(b.stages.root); err != nil {
		return err
	}
	return os.Mkdir(b.stages.root, 0o711)
}

// linking refuses the sample of a run that copied the layers instead of linking them.
func (b *bench) linking(run func(context.Context) (sample, error)) func(context.Context) (sample, error) {
	return func(ctx context.Context) (sample, error) {
		s, err := run(ctx)
		for _, blob := range blobs(b.stages.root) {
			if stat, ok := blob.Sys().(*syscall.Stat_t); ok && stat.Nlink == 1 && blob.Size() > mib/2 {
				return s, errors.Join(err, fmt.Errorf("%w: blob %s is a copy, no link", errRefused, blob.Name()))
			}
		}
		return s, err
	}
}

// holding brings the store to the state in which seedbed leaves it.
func (b *bench) holding(form string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := execute(ctx, b.importCommand(b.online, form))
		return err
	}
}

// changing brings an empty store to the state that seedbed leaves it in with one form, whose bundles are then those of
// another form, under the same names.
func (b *bench) changing(from, to string) func(context.Context) error {
	return func(ctx context.Context) error {
		err := errors.Join(b.empty(ctx), b.corpus.point(from))
		if err == nil {
			err = b.holding(formCurrent)(ctx)
		}
		if err != nil {
			return err
		}
		return b.corpus.point(to)
	}
}
