package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// sample is one measured run.
type sample struct {
	Wall   time.Duration // from before the first process starts to after the last has ended
	User   time.Duration // CPU of all processes together
	System time.Duration
	RSS    int64         // peak memory of the largest process, in bytes
	Daemon time.Duration // CPU of the running containerd meanwhile; 0 without one
	Stored int64         // size of all blobs in the store afterwards, in bytes
}

// errRefused is what a run returns that the program does not offer (yet).
var errRefused = errors.New("refused")

// exitUsage is seedbed's exit code for a command line that it does not know.
const exitUsage = 2

// measure runs the commands one after the other and adds up what they take. Their output is dropped; the end of what
// they say on stderr stands in the error.
func measure(ctx context.Context, commands ...[]string) (sample, error) {
	settle()
	var total sample
	started := time.Now()
	for _, args := range commands {
		state, err := execute(ctx, args)
		if err != nil {
			return total, err
		}
		total.add(state)
	}
	total.Wall = time.Since(started)
	return total, nil
}

func (s *sample) add(state *os.ProcessState) {
	s.User += state.UserTime()
	s.System += state.SystemTime()
	if usage, ok := state.SysUsage().(*syscall.Rusage); ok {
		s.RSS = max(s.RSS, usage.Maxrss<<10)
	}
}

func execute(ctx context.Context, args []string) (*os.ProcessState, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return nil, refusal(err, args, tail(stderr.Bytes()))
	}
	return cmd.ProcessState, nil
}

// refusal tells a program that does not offer something from one that failed at it.
func refusal(err error, args []string, said string) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && (exit.ExitCode() == exitUsage || strings.Contains(said, "not available")) {
		return fmt.Errorf("%w: %s", errRefused, said)
	}
	return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, said)
}

// tail is the end of a program's complaint.
func tail(stderr []byte) string {
	const enough = 400
	text := bytes.TrimSpace(stderr)
	return string(text[max(0, len(text)-enough):])
}

// settle makes runs alike: what the last one wrote is on the disk, and this process is small. The kernel counts the
// memory of the process that starts another into the peak of that other (exec_mmap in fs/exec.c), so this one forgets
// its own peak before (proc_pid_clear_refs(5): 5).
func settle() {
	unix.Sync()
	debug.FreeOSMemory()
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // not there in every sandbox: then peaks are too high by some MiB
}

// median returns the middle of the values, or of its two middle ones the mean; it wants at least one.
func median[T int64 | float64 | time.Duration](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// each returns one field of every sample.
func each[T any](samples []sample, field func(sample) T) []T {
	values := make([]T, len(samples))
	for i, s := range samples {
		values[i] = field(s)
	}
	return values
}
