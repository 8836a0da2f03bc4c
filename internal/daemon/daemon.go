// Package daemon runs containerd as a child process: it finds the program,
// renders the configuration, looks before it leaps, waits until the API answers,
// asks for its health, carries the logs away, and stops the child again.
//
// It knows nothing of the manifest or of flags: callers hand in plain paths.
package daemon

import (
	"os"
	"time"

	"seedbed/logpump"
)

// DefaultStopTimeout is how long containerd may take to stop unless something else is said.
const DefaultStopTimeout = 30 * time.Second

// Options of [Run] and [Preflight].
type Options struct {
	// Binary is what to run; see [Find].
	Binary Binary
	// ConfigFile is containerd's configuration.
	ConfigFile string
	// Config is its text; read from the file if it is nil.
	Config []byte
	// Address is the path of containerd's gRPC socket, as it stands in the configuration.
	Address string
	// Root and State are the directories that the configuration has to name. Empty for any.
	Root, State string
	// User is this process's effective user; containerd needs root, which is the default.
	User int
	// RunscFIFO is the path of the FIFO that runsc logs into; it is made if it is
	// absent. Empty for none.
	RunscFIFO string
	// RunscFIFOFiles are ends of that FIFO that are open already, as a socket unit or the service manager's
	// store passes them. Run closes them.
	RunscFIFOFiles []*os.File
	// RunscFIFOOpened is called with a FIFO that Run has opened, to be kept open elsewhere.
	RunscFIFOOpened func(*os.File)
	// RunscSpool is where lines of the FIFO lie that are not in the log yet; see logpump.Options.
	RunscSpool string
	// BinDir comes first in the PATH of the child. Empty for none.
	BinDir string
	// TempDir is the TMPDIR of the child. Empty to leave it as it is.
	TempDir string
	// Environ is the environment that the child's is made of, as os.Environ returns it.
	Environ []string
	// StartTimeout bounds the wait for the API; 0 waits as long as the child lives.
	StartTimeout time.Duration
	// StopTimeout is how long the child may take to stop before it is killed; [DefaultStopTimeout] by default.
	StopTimeout time.Duration
	// MaxRecord is the longest record of both logs in bytes; see logpump.Options.
	MaxRecord int
	// Log takes what the child writes to its standard output and error.
	Log logpump.Sink
	// RunscLog takes what comes through the FIFO.
	RunscLog logpump.Sink
	// Counters is called with what went through the FIFO, at most once a second and at the end.
	Counters func(logpump.Counters)
	// Signals are passed on to the child.
	Signals <-chan os.Signal
	// Ready is called once, when the API answers, the CRI plugin is ready where it is configured, and
	// the logs are being read.
	Ready func()
	// Status is called with what Run is doing, in a few words.
	Status func(string)
	// Stopping is called once, when the child is about to be sent TERM.
	Stopping func()
	// Extend is called with how much longer a start or a stop may take, while it takes long.
	Extend func(time.Duration)
	// Watchdog is how often Alive has to be called, 0 for never. It is called only when
	// containerd has answered a health call in a third of that time.
	Watchdog time.Duration
	Alive    func()
}

func (o Options) withDefaults() Options {
	if o.StopTimeout <= 0 {
		o.StopTimeout = DefaultStopTimeout
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
	if o.Extend == nil {
		o.Extend = func(time.Duration) {}
	}
	if o.Alive == nil {
		o.Watchdog = 0
	}
	if o.RunscFIFOOpened == nil {
		o.RunscFIFOOpened = func(*os.File) {}
	}
	return o
}
