package daemon

import (
	"errors"
	"fmt"
	"syscall"
	"time"
)

// ExitError says how containerd ended when nobody had asked for it, or that it
// did not end well when somebody had.
type ExitError struct {
	// Code is its exit code, if no signal ended it.
	Code int
	// Signal ended it; 0 if none did.
	Signal syscall.Signal
	// LastWords are its last error lines and the last thing that it said; empty if it said nothing.
	LastWords string
	// Killed says that it had to be killed since it did not stop in time.
	Killed bool
}

func (e *ExitError) Error() string {
	s := fmt.Sprintf("run containerd: it exited with status %d", e.Code)
	switch {
	case e.Killed:
		s = "stop containerd: it did not end in time and was killed"
	case e.Signal != 0:
		s = fmt.Sprintf("run containerd: signal %d (%v) ended it", int(e.Signal), e.Signal)
	case e.Code == 0:
		s = "run containerd: it ended, with status 0, and nobody had asked it to"
	}
	if e.LastWords != "" {
		s += ": " + e.LastWords
	}
	return s
}

// ExitCode is containerd's own, or 128 and the number of the signal that ended it. An end with 0 that
// nobody had asked for is 1: it must not look like success to whoever restarts what failed.
func (e *ExitError) ExitCode() int {
	if e.Signal != 0 {
		return 128 + int(e.Signal)
	}
	return max(e.Code, 1)
}

// Hint says where to look for who sent KILL, of which containerd cannot tell.
func (e *ExitError) Hint() string {
	switch {
	case e.Killed:
		return "--stop-timeout gives it longer"
	case e.Signal == syscall.SIGKILL:
		return "containerd did not see it coming: `journalctl -k` says if the kernel killed it for want of memory"
	}
	return ""
}

// ErrStartTimeout is what every *[StartTimeout] unwraps to.
var ErrStartTimeout = errors.New("containerd does not answer in time")

// StartTimeout says that containerd did not answer in time; it was stopped.
type StartTimeout struct {
	Address string
	After   time.Duration
	// LastWords are the last error lines of containerd and the last thing that it said.
	LastWords string
}

func (e *StartTimeout) Error() string {
	s := fmt.Sprintf("start containerd: no answer at %q within %v", e.Address, e.After)
	if e.LastWords != "" {
		s += ": " + e.LastWords
	}
	return s
}

// Unwrap returns ErrStartTimeout.
func (e *StartTimeout) Unwrap() error { return ErrStartTimeout }

// Hint says what to do about it.
func (e *StartTimeout) Hint() string {
	return "its log says what it waits for; --start-timeout gives it longer"
}

// exitError describes the end of c, with what words says of it: nothing of a
// KILL, which takes a process unawares.
func exitError(c *child, words *lastWords) *ExitError {
	if c.state == nil {
		return &ExitError{Code: 1, LastWords: c.err.Error()}
	}
	status, ok := c.state.Sys().(syscall.WaitStatus)
	switch {
	case !ok || !status.Signaled():
		return &ExitError{Code: c.state.ExitCode(), LastWords: words.of(recently)}
	case status.Signal() == syscall.SIGKILL:
		return &ExitError{Signal: syscall.SIGKILL}
	}
	return &ExitError{Signal: status.Signal(), LastWords: words.errorsOf(recently)}
}
