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
	}
	if e.LastWords != "" {
		s += ": " + e.LastWords
	}
	return s
}

// ExitCode is containerd's own, or 128 and the number of the signal that ended it.
func (e *ExitError) ExitCode() int {
	if e.Signal != 0 {
		return 128 + int(e.Signal)
	}
	return e.Code
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

// exitError describes the end of c.
func exitError(c *child, lastWords string) *ExitError {
	e := &ExitError{Code: 1, LastWords: lastWords}
	if c.state == nil {
		e.LastWords = c.err.Error()
		return e
	}
	e.Code = c.state.ExitCode()
	if status, ok := c.state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		e.Code, e.Signal = 0, status.Signal()
	}
	return e
}
