package main

import (
	"context"
	"errors"
	"time"
)

// importCommand is seedbed's import of a form into a running containerd.
func (b *bench) importCommand(d *daemon, form string, flags ...string) []string {
	return append([]string{b.programs.seedbed, "preseed", "import", b.corpus.preseed(form), "-a", d.address}, flags...)
}

// offlineCommand is the same into a root without a daemon.
func (b *bench) offlineCommand(form string, flags ...string) []string {
	return append([]string{b.programs.seedbed, "preseed", "import", b.corpus.preseed(form), "--offline", "--containerd-root", b.stages.root}, flags...)
}

// measure measures commands while the daemon runs.
func (d *daemon) measure(ctx context.Context, commands ...[]string) (sample, error) {
	before := d.cpu()
	s, err := measure(ctx, commands...)
	s.Daemon = d.cpu() - before
	return s, err
}

func (b *bench) seedbedImport(form string) func(context.Context) (sample, error) {
	return func(ctx context.Context) (sample, error) {
		return b.online.measure(ctx, b.importCommand(b.online, form))
	}
}

func (b *bench) seedbedUnpack(ctx context.Context) (sample, error) {
	return b.fast.measure(ctx, b.importCommand(b.fast, formSingle, "--unpack"))
}

func (b *bench) seedbedOffline(form string, flags ...string) func(context.Context) (sample, error) {
	return func(ctx context.Context) (sample, error) { return measure(ctx, b.offlineCommand(form, flags...)) }
}

// ctrCommand is ctr's import of one archive, by default in its fastest form.
func (d *daemon) ctrCommand(path string, flags ...string) []string {
	if flags == nil {
		flags = []string{"--local", "--no-unpack"}
	}
	args := append([]string{d.ctr, "-a", d.address, "-n", namespace, "images", "import"}, flags...)
	return append(args, path)
}

// ctrImport imports a form's bundles one by one.
func (b *bench) ctrImport(form string, flags ...string) func(context.Context) (sample, error) {
	return func(ctx context.Context) (sample, error) {
		commands, err := b.ctrLoop(b.online, form, flags...)
		if err != nil {
			return sample{}, err
		}
		return b.online.measure(ctx, commands...)
	}
}

func (b *bench) ctrLoop(d *daemon, form string, flags ...string) ([][]string, error) {
	paths, err := b.corpus.bundles(form)
	if err == nil && len(paths) == 0 {
		err = errors.New("find bundles of form " + form + ": there is none: was its tool missing when the corpus was made?")
	}
	var commands [][]string
	for _, path := range paths {
		commands = append(commands, d.ctrCommand(path, flags...))
	}
	return commands, err
}

// ctrImportPiped imports what a tool decompresses.
func (b *bench) ctrImportPiped(form, tool string) func(context.Context) (sample, error) {
	return func(ctx context.Context) (sample, error) {
		paths, err := b.corpus.bundles(form)
		if err != nil {
			return sample{}, err
		}
		var commands [][]string
		for _, path := range paths {
			script := []string{"sh", "-c", `tool=$1 path=$2; shift 2; "$tool" -dc "$path" | "$@"`, "sh", tool, path}
			commands = append(commands, append(script, b.online.ctrCommand("-")...))
		}
		return b.online.measure(ctx, commands...)
	}
}

func (b *bench) ctrUnpack(ctx context.Context) (sample, error) {
	commands, err := b.ctrLoop(b.fast, formSingle, []string{}...)
	if err != nil {
		return sample{}, err
	}
	return b.fast.measure(ctx, commands...)
}

// ctrStaged starts a containerd, imports into it and stops it, all of it measured. Its peak memory is ctr's.
func (b *bench) ctrStaged(form string) func(context.Context) (sample, error) {
	return func(ctx context.Context) (sample, error) {
		commands, err := b.ctrLoop(b.stages, form)
		if err != nil {
			return sample{}, err
		}
		settle()
		started := time.Now()
		if err := b.stages.start(ctx); err != nil {
			return sample{}, err
		}
		var s sample
		for _, args := range commands {
			state, err := execute(ctx, args)
			if err != nil {
				return sample{}, errors.Join(err, b.stages.kill())
			}
			s.add(state)
		}
		err = b.stages.stop()
		s.Wall = time.Since(started)
		return s, err
	}
}
