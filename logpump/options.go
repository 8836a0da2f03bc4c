package logpump

import (
	"fmt"
	"time"
)

// Format says how a stream is cut into records and what is looked for in them.
type Format string

const (
	// Auto decides record by record: glog lines, JSON values, logfmt lines, Go
	// panics with their stacks, and anything else as lines of text.
	Auto Format = ""
	// Glog takes lines, with or without a glog header, and Go panics.
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

func (f Format) hasJSON() bool   { return f == Auto || f == JSON }
func (f Format) hasPanics() bool { return f == Auto || f == Glog }

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
	return o
}
