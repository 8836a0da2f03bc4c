package daemon

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"seedbed/logpump"
)

// ExitError says how containerd ended when nobody had asked for it, or that it
// did not end well when somebody had.
type ExitError struct {
	// Code is its exit code, if no signal ended it.
	Code int
	// Signal ended it; 0 if none did.
	Signal syscall.Signal
	// LastLine is the last thing that it said; empty if it said nothing.
	LastLine string
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
	if e.LastLine != "" {
		s += ": " + e.LastLine
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
	// LastLine is the last thing that containerd said.
	LastLine string
}

func (e *StartTimeout) Error() string {
	s := fmt.Sprintf("start containerd: no answer at %q within %v", e.Address, e.After)
	if e.LastLine != "" {
		s += ": " + e.LastLine
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
func exitError(c *child, lastLine string) *ExitError {
	e := &ExitError{Code: 1, LastLine: lastLine}
	if c.state == nil {
		e.LastLine = c.err.Error()
		return e
	}
	e.Code = c.state.ExitCode()
	if status, ok := c.state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		e.Code, e.Signal = 0, status.Signal()
	}
	return e
}

// lastLine is a sink that hands records on and remembers the last one.
type lastLine struct {
	logpump.Sink
	mu   sync.Mutex
	text string
}

// Send remembers the record even if the sink behind refuses it.
func (l *lastLine) Send(r logpump.Record) error {
	l.mu.Lock()
	l.text = r.Message
	l.mu.Unlock()
	return l.Sink.Send(r)
}

func (l *lastLine) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text
}
