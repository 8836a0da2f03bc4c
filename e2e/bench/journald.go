package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// journaldRecords is how many records a run carries into a real journald, which is the slower of the two.
const journaldRecords = 200_000

// carrier is a program that carries a FIFO.
type carrier struct {
	command []string // with SEEDBED, FIFO and DIR in the place of the paths
	needs   string   // a program that may not be on this machine; "" for none
	goesOn  bool     // it does not end with the FIFO, so it is sent TERM
}

// logRows carry records into a real journald, and into files, beside the programs that others use for that.
func (b *bench) logRows() []row {
	self := func(args ...string) carrier {
		return carrier{command: append([]string{"SEEDBED", "logs", "pump", "FIFO", "--identifier", "bench", "--format", "text"}, args...), goesOn: true}
	}
	journald := func(id, baseline string, bar float64, peer ...string) row {
		return row{
			id: id, title: "200,000 records of 100 bytes, FIFO into a real journald", baseline: baseline, bar: bar,
			seedbed: contender{nil, b.intoJournald(self("--log-format", "journal"))},
			peer:    contender{nil, b.intoJournald(carrier{command: peer, needs: peer[0]})},
		}
	}
	return []row{
		journald("pump-systemd-cat", "`systemd-cat cat`", 1, "systemd-cat", "-t", "bench", "cat", "FIFO"),
		journald("pump-logger", "`logger`", 1, "logger", "--socket", "/run/systemd/journal/dev-log", "-t", "bench", "-f", "FIFO"),
		{
			id: "pump-s6-log", title: "1,000,000 records of 100 bytes, FIFO to a file", baseline: "`s6-log`", bar: 1,
			seedbed: contender{nil, b.intoFiles(carrier{command: append([]string{"sh", "-c", `exec "$@" >DIR/log`, "sh"}, self("--log-format", "text").command...), goesOn: true})},
			peer:    contender{nil, b.intoFiles(carrier{command: []string{"sh", "-c", "exec s6-log n20 s16777216 DIR/s6 <FIFO"}, needs: "s6-log"})},
		},
	}
}

// in returns the command for a program and a directory.
func (c carrier) in(seedbed, dir string) []string {
	paths := strings.NewReplacer("SEEDBED", seedbed, "FIFO", filepath.Join(dir, "fifo"), "DIR", dir)
	args := make([]string, len(c.command))
	for i, arg := range c.command {
		args[i] = paths.Replace(arg)
	}
	return args
}

// carry carries n records through a FIFO in dir; prefix is what the program is started with. It adds what it took to s.
func (b *bench) carry(ctx context.Context, c carrier, s *sample, dir string, n int, prefix ...string) error {
	if _, err := exec.LookPath(c.needs); c.needs != "" && err != nil {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		return fmt.Errorf("make %q: %w", fifo, err)
	}
	args := append(slices.Clone(prefix), c.in(b.programs.seedbed, dir)...)
	var stderr bytes.Buffer
	process := exec.CommandContext(ctx, args[0], args[1:]...)
	process.Stderr = &stderr
	if err := process.Start(); err != nil {
		return err
	}
	stopped := make(chan error, 1)
	go func() { stopped <- process.Wait() }()
	err := feed(fifo, n, stopped)
	if c.goesOn {
		_ = process.Process.Signal(syscall.SIGTERM)
	}
	if err = errors.Join(err, <-stopped); err != nil {
		return refusal(err, args, tail(stderr.Bytes()))
	}
	s.add(process.ProcessState)
	return nil
}

// feed writes n records; a reader that has stopped ends it.
func feed(fifo string, n int, stopped chan error) error {
	f, err := os.OpenFile(fifo, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- writeRecords(f, n) }()
	select {
	case err = <-done:
	case err = <-stopped:
		stopped <- err
		_ = f.Close()
		<-done
		return errors.New("it ended before the records did")
	}
	return errors.Join(err, f.Close())
}

// intoFiles measures a carrier that writes files.
func (b *bench) intoFiles(c carrier) func(context.Context) (sample, error) {
	return func(ctx context.Context) (s sample, err error) {
		dir, err := os.MkdirTemp(b.disk, "pump-")
		if err != nil {
			return s, err
		}
		defer os.RemoveAll(dir)
		settle()
		started := time.Now()
		err = b.carry(ctx, c, &s, dir, b.records())
		s.Wall = time.Since(started)
		return s, errors.Join(err, wantLines(dir, b.records()))
	}
}

// wantLines wants so many lines in the files below dir.
func wantLines(dir string, want int) error {
	found := 0
	for _, pattern := range []string{"log", "s6/current", "s6/@*"} {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return err
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			found += bytes.Count(data, []byte("\n"))
		}
	}
	if found != want {
		return fmt.Errorf("count lines in files: found %d: expected %d", found, want)
	}
	return nil
}

// intoJournald measures a carrier, and the journald that it sends to, until everything is in the journal.
func (b *bench) intoJournald(c carrier) func(context.Context) (sample, error) {
	n := journaldRecords
	if b.quick {
		n /= 10
	}
	return func(ctx context.Context) (s sample, err error) {
		dir, err := os.MkdirTemp(b.short, "pump-")
		if err != nil {
			return s, err
		}
		defer os.RemoveAll(dir)
		journald, err := startJournald(ctx, dir)
		if err != nil {
			return s, err
		}
		defer func() {
			_ = journald.Process.Kill()
			_ = journald.Wait() // it dies of the signal
			s.Daemon = journald.ProcessState.UserTime() + journald.ProcessState.SystemTime()
		}()
		inside := []string{"nsenter", "--mount", "--net", "--target", strconv.Itoa(journald.Process.Pid), "--"}
		settle()
		started := time.Now()
		if err := b.carry(ctx, c, &s, dir, n, inside...); err != nil {
			return s, err
		}
		if _, err := execute(ctx, append(slices.Clone(inside), "journalctl", "--sync")); err != nil {
			return s, err
		}
		s.Wall = time.Since(started)
		return s, wantEntries(ctx, inside, n)
	}
}

// wantEntries wants so many entries in the journal.
func wantEntries(ctx context.Context, inside []string, want int) error {
	args := append(slices.Clone(inside), "journalctl", "--quiet", "--identifier=bench", "--output=cat")
	out, err := exec.CommandContext(ctx, args[0], args[1:]...).Output()
	if err != nil {
		return fmt.Errorf("read the journal: %w", err)
	}
	if found := bytes.Count(out, []byte("\n")); found != want {
		return fmt.Errorf("count entries in the journal: found %d: expected %d", found, want)
	}
	return nil
}

// startJournald starts a journald with namespaces, sockets and a journal of its own, which it ends with, and returns
// when it listens. dir is where it says so.
func startJournald(ctx context.Context, dir string) (*exec.Cmd, error) {
	const program = "/usr/lib/systemd/systemd-journald"
	const script = `mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/journal /run/log &&
		echo 0123456789abcdef0123456789abcdef >/run/machine-id && mount --bind /run/machine-id /etc/machine-id &&
		echo ` + queue + ` >/proc/sys/net/unix/max_dgram_qlen && exec ` + program
	if _, err := os.Stat(program); err != nil {
		return nil, fmt.Errorf("%w: %w", errRefused, err)
	}
	ready := filepath.Join(dir, "notify")
	fd, err := bind(ready)
	if err != nil {
		return nil, err
	}
	defer fd.close()
	cmd := exec.CommandContext(ctx, "sh", "-c", script)
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+ready)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	message := make([]byte, 4096)
	for {
		size, err := unix.Read(fd.fd, message)
		switch {
		case err == unix.EINTR:
		case err != nil:
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			return nil, fmt.Errorf("start journald: wait for READY=1: %w", err)
		case bytes.Contains(message[:size], []byte("READY=1")):
			return cmd, nil
		}
	}
}
