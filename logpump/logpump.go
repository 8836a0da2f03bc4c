// Package logpump carries what is written into a FIFO or a pipe to the journal
// or to a text stream, record by record.
//
// [Open] opens a FIFO so that neither side ever waits for the other, [Pump]
// cuts the byte stream into records until its context ends and then takes what
// is left, and a [Sink] receives them. No byte that reached the FIFO before the
// end of the context is left in it. The package keeps no state of its own,
// writes no log, and never reads the environment.
package logpump

import "time"

// Priorities of records, as in syslog(3).
const (
	Critical = 2
	Error    = 3
	Warning  = 4
	Info     = 6
	Debug    = 7
)

// Record is one entry of a log. Message and Fields hold valid UTF-8 without
// control characters other than tab and, between the lines of a grouped record,
// newline, whatever was written into the FIFO.
type Record struct {
	// Time is when the emitter says that it made the record; zero when it does
	// not say.
	Time time.Time
	// Priority is the syslog priority, 0 (emergency) to 7 (debug).
	Priority int
	// Message is the text, without the header that the other fields were taken from.
	Message string
	// Fields are further facts, in the order of the record. The slice is only
	// valid until Send returns.
	Fields []Field
}

// Field is one named fact of a record. Its name is a valid journal field name:
// upper-case letters, digits and underscores, not beginning with an underscore
// (systemd.journal-fields(7)).
type Field struct{ Name, Value string }

// Names of the fields that records carry whatever their format is; other keys of
// a record become [Options.FieldPrefix] and the key in upper case.
const (
	// FieldFile and FieldLine are the place in the emitter's source.
	FieldFile = "CODE_FILE"
	FieldLine = "CODE_LINE"
	// FieldPID is the process that emitted the record, by its own account: inside
	// a sandbox it is the number in the sandbox's own PID namespace.
	FieldPID = "SYSLOG_PID"
	// FieldPart marks a piece of a record that was too long: "1", "2", …, and "3/3"
	// for the last piece.
	FieldPart = "RECORD_PART"
)

// Sink receives records. Send is called from one goroutine at a time; an error
// means that this record is lost, and does not stop the pump.
type Sink interface {
	Send(Record) error
	Close() error
}

// Counters say what a pump has done.
type Counters struct {
	// Records were handed to the sink, the dropped ones included.
	Records uint64
	// Bytes were read.
	Bytes uint64
	// Dropped records were refused by the sink.
	Dropped uint64
	// Split records were longer than [Options.MaxRecord] and came in pieces.
	Split uint64
}
