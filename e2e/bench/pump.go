package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

const (
	pumpRecords = 1_000_000
	pumpRecord  = 100 // bytes, with its newline
	// pumpPatience is how long no record may arrive before the run has failed.
	pumpPatience = 10 * time.Second
	// commandJournalSend is the argument with which this program is the peer of the pump rows.
	commandJournalSend = "journal-send"
)

// pumpRows carry records from a FIFO to a socket that stands in for journald's and only counts: what is measured is
// the pump.
func (b *bench) pumpRows() []row {
	return []row{{
		id: "pump", title: "1,000,000 records of 100 bytes, FIFO to a receiver that counts", baseline: "go-systemd's `journal.Send`",
		bar: 0.5, cpu: true, limit: 4 * time.Second,
		seedbed: contender{nil, func(ctx context.Context) (sample, error) {
			return b.pump(ctx, func(fifo string) ([]string, error) {
				return []string{b.programs.seedbed, "logs", "pump", fifo, "--identifier", "bench", "--format", "text", "--log-format", "journal"}, nil
			})
		}},
		peer: contender{nil, func(ctx context.Context) (sample, error) {
			return b.pump(ctx, func(fifo string) ([]string, error) {
				self, err := os.Executable()
				return []string{self, commandJournalSend, fifo}, err
			})
		}},
	}}
}

// records is how many a run carries.
func (b *bench) records() int {
	if b.quick {
		return pumpRecords / 10
	}
	return pumpRecords
}

// pump runs a program that carries a FIFO to the journal, feeds it, and counts what arrives.
func (b *bench) pump(ctx context.Context, command func(fifo string) ([]string, error)) (s sample, err error) {
	dir, err := os.MkdirTemp(b.short, "pump-")
	if err != nil {
		return s, err
	}
	defer os.RemoveAll(dir)
	fifo := filepath.Join(dir, "log.fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		return s, fmt.Errorf("make %q: %w", fifo, err)
	}
	args, err := command(fifo)
	if err != nil {
		return s, err
	}
	r, err := listen(filepath.Join(dir, "socket"))
	if err != nil {
		return s, err
	}
	defer r.close()
	settle()
	started := time.Now()
	process, err := startPump(ctx, dir, args)
	if err != nil {
		return s, err
	}
	err = carry(ctx, fifo, r, b.records())
	s.Wall = time.Since(started)
	_ = process.Process.Signal(syscall.SIGTERM)
	_ = process.Wait() // the peer dies of the signal, and what was to arrive has arrived
	if err != nil {
		return s, fmt.Errorf("%w: %s", err, tail(process.Stderr.(*bytes.Buffer).Bytes()))
	}
	s.add(process.ProcessState)
	return s, nil
}

// startPump starts a program in a mount namespace of its own, where dir is journald's directory.
func startPump(ctx context.Context, dir string, args []string) (*exec.Cmd, error) {
	const script = `mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/journal && mount --bind "$1" /run/systemd/journal && shift && exec "$@"`
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", script, "sh", dir}, args...)...)
	cmd.Stderr = &bytes.Buffer{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	return cmd, cmd.Start()
}

// carry writes n records into the FIFO, one write each as programs do, and returns when the receiver has them all.
func carry(ctx context.Context, fifo string, r *receiver, n int) error {
	f, err := os.OpenFile(fifo, os.O_RDWR|unix.O_NONBLOCK, 0) // of Go's poller: closing it ends a write that blocks
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	stop := context.AfterFunc(ctx, func() { f.Close() })
	defer stop()
	defer f.Close()
	group.Go(func() error { return writeRecords(f, n) })
	group.Go(func() error { return r.await(ctx, n) })
	return group.Wait()
}

func writeRecords(f *os.File, n int) error {
	line := bytes.Repeat([]byte("x"), pumpRecord)
	line[pumpRecord-1] = '\n'
	for i := range n {
		copy(line, fmt.Appendf(nil, "record %09d ", i))
		if _, err := f.Write(line); err != nil {
			return err
		}
	}
	return nil
}

// receiver takes datagrams.
type receiver struct{ fd int }

// queue is how many datagrams a socket of journald's holds where systemd is process 1: it sets net.unix.max_dgram_qlen so
// at its start. The kernel's own 10 make two programs wait for each other all the time.
const queue = "512"

// listen returns a receiver on a socket of journald's kind. The length of its queue is that of the network namespace that it
// is made in: one of its own, on a thread that ends with it, so that the machine's is left alone.
func listen(path string) (*receiver, error) {
	type made struct {
		r   *receiver
		err error
	}
	done := make(chan made)
	go func() {
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = os.WriteFile("/proc/sys/net/unix/max_dgram_qlen", []byte(queue), 0)
		}
		if err != nil {
			done <- made{err: fmt.Errorf("make a network namespace with a queue of %s: %w", queue, err)}
			return
		}
		r, err := bind(path)
		done <- made{r, err}
	}()
	m := <-done
	return m.r, m.err
}

func bind(path string) (*receiver, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make socket: %w", err)
	}
	r := &receiver{fd: fd}
	patience := unix.NsecToTimeval(pumpPatience.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience); err != nil {
		r.close()
		return nil, fmt.Errorf("set time-out of %q: %w", path, err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		r.close()
		return nil, fmt.Errorf("bind %q: %w", path, err)
	}
	return r, nil
}

func (r *receiver) close() { _ = unix.Close(r.fd) }

// await returns when n datagrams have arrived. It takes many with one system call: what it costs is not to slow down the
// sender.
func (r *receiver) await(ctx context.Context, n int) error {
	b := newBurst()
	for got := 0; got < n; {
		count, err := b.receive(r.fd)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == unix.EINTR:
			continue
		case err != nil:
			return fmt.Errorf("receive records: found %d of %d: %w", got, n, err)
		}
		for i := range count {
			if entry := b.datagram(i); !bytes.Contains(entry, []byte("MESSAGE")) {
				return fmt.Errorf("receive record: found no message in %q", entry)
			}
		}
		got += count
	}
	return nil
}

// burst is the memory that datagrams are received in with recvmmsg(2).
type burst struct {
	headers [64]struct {
		unix.Msghdr
		length uint32
	}
	vectors [64]unix.Iovec
	memory  [64][1024]byte
}

func newBurst() *burst {
	b := &burst{}
	for i := range b.headers {
		b.vectors[i].Base = &b.memory[i][0]
		b.vectors[i].SetLen(len(b.memory[i]))
		b.headers[i].Iov = &b.vectors[i]
		b.headers[i].SetIovlen(1)
	}
	return b
}

// receive waits for a datagram and takes those that are there.
func (b *burst) receive(fd int) (int, error) {
	n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&b.headers[0])), uintptr(len(b.headers)), unix.MSG_WAITFORONE, 0, 0)
	runtime.KeepAlive(b)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

func (b *burst) datagram(i int) []byte { return b.memory[i][:b.headers[i].length] }
