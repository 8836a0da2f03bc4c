package logpump

import (
	"fmt"
	"os"
	"time"
)

// Format says how a stream is cut into records and what is looked for in them.
type Format string

const (
	// Auto decides record by record: glog lines with the lines that continue them, JSON
	// values, logfmt lines, Go panics with their stacks, and anything else as lines of text.
	Auto Format = ""
	// Glog takes lines with a glog header, each with the lines behind it that have none,
	// Go panics, and lines.
	Glog Format = "glog"
	// JSON takes JSON values, with or without a newline behind them; what is none
	// is taken as lines of text.
	JSON Format = "json"
	// Text takes lines as they are.
	Text Format = "text"
)

// ParseFormat returns the format of the given name: auto, glog, json or text.
func ParseFormat(name string) (Format, error) {
	switch f := Format(name); f {
	case "auto":
		return Auto, nil
	case Auto, Glog, JSON, Text:
		return f, nil
	}
	return "", fmt.Errorf("parse log format %q: expected auto, glog, json or text", name)
}

func (f Format) hasJSON() bool { return f == Auto || f == JSON }
func (f Format) hasGLog() bool { return f == Auto || f == Glog }

// Options tune a pump; the zero value is the default.
type Options struct {
	// Format of the stream; Auto by default.
	Format Format
	// FieldPrefix stands before the names of fields that are made of a record's own
	// keys, "LOG_" by default, so that no record can pose as a field of the journal.
	FieldPrefix string
	// MaxRecord is the longest record in bytes, 48 KiB by default (what journald
	// takes for one line by default); longer ones are split and marked with FieldPart.
	MaxRecord int
	// Idle is how long the beginning of a record waits for its end; 1 s by default.
	Idle time.Duration
	// Group is how long a finished line waits for lines that continue it; 50 ms by default.
	Group time.Duration
	// Backlog is how many bytes are kept while the sink is busy; the oldest records
	// are dropped when there are more. 4 MiB by default; the pump has twice as much memory.
	Backlog int
	// Patience is how long a sink may stay busy at the end before what is left is
	// dropped, or stays in the spool; 5 s by default.
	Patience time.Duration
	// Spool is a file for what was read and is not with the sink yet, so that not even
	// SIGKILL loses it: the next pump with the same spool begins with that. It is made
	// if it is absent, best in a directory on tmpfs. Empty for none.
	Spool string
	// Report is called with the counters when they have changed, at most once a second.
	Report func(Counters)
	// Opened is called by [Serve] with each FIFO that it has opened, to be kept open
	// elsewhere; the file is only valid until it returns.
	Opened func(*os.File)
}

func (o Options) withDefaults() Options {
	if o.FieldPrefix == "" {
		o.FieldPrefix = "LOG_"
	}
	if o.MaxRecord <= 0 {
		o.MaxRecord = 48 << 10
	}
	if o.Idle <= 0 {
		o.Idle = time.Second
	}
	if o.Group <= 0 {
		o.Group = 50 * time.Millisecond
	}
	if o.Backlog <= 0 {
		o.Backlog = 4 << 20
	}
	o.Backlog = max(o.Backlog, 2*(o.MaxRecord+readSize))
	if o.Patience <= 0 {
		o.Patience = 5 * time.Second
	}
	if o.Report == nil {
		o.Report = func(Counters) {}
	}
	if o.Opened == nil {
		o.Opened = func(*os.File) {}
	}
	return o
}
