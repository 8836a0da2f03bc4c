// Package daemon runs containerd as a child process: it finds the program,
// renders the configuration, looks before it leaps, waits until the API answers,
// carries the logs away, and stops the child again.
//
// It knows nothing of the manifest or of flags: callers hand in plain paths.
package daemon

import (
	"os"
	"time"

	"seedbed/logpump"
)

// Options of [Run] and [Preflight].
type Options struct {
	// Binary is what to run; see [Find].
	Binary Binary
	// ConfigFile is containerd's configuration.
	ConfigFile string
	// Address is the path of containerd's gRPC socket, as it stands in the configuration.
	Address string
	// RunscFIFO is the path of the FIFO that runsc logs into; it is made if it is
	// absent. Empty for none.
	RunscFIFO string
	// RunscFIFOFile is that FIFO already open, as a socket unit passes it. Run uses a
	// duplicate; the file stays the caller's.
	RunscFIFOFile *os.File
	// BinDir comes first in the PATH of the child. Empty for none.
	BinDir string
	// TempDir is the TMPDIR of the child. Empty to leave it as it is.
	TempDir string
	// Environ is the environment that the child's is made of, as os.Environ returns it.
	Environ []string
	// StartTimeout bounds the wait for the API; 0 waits as long as the child lives.
	StartTimeout time.Duration
	// StopTimeout is how long the child may take to stop before it is killed; 90 s by default.
	StopTimeout time.Duration
	// Log takes what the child writes to its standard output and error.
	Log logpump.Sink
	// RunscLog takes what comes through the FIFO.
	RunscLog logpump.Sink
	// Ready is called once, when the API answers and the logs are being read.
	Ready func()
	// Status is called with what Run is doing, in a few words.
	Status func(string)
	// Stopping is called once, when the child is about to be sent TERM.
	Stopping func()
}

func (o Options) withDefaults() Options {
	if o.StopTimeout <= 0 {
		o.StopTimeout = 90 * time.Second
	}
	if o.Log == nil {
		o.Log = logpump.NewText(os.Stderr, "containerd")
	}
	if o.RunscLog == nil {
		o.RunscLog = logpump.NewText(os.Stderr, "runsc")
	}
	if o.Ready == nil {
		o.Ready = func() {}
	}
	if o.Status == nil {
		o.Status = func(string) {}
	}
	if o.Stopping == nil {
		o.Stopping = func() {}
	}
	return o
}
