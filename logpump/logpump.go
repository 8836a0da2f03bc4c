// Package logpump carries what is written into a FIFO or a pipe to the journal
// or to a text stream, record by record.
//
// [Serve] looks after a FIFO at a path: it pumps what is there, and whatever takes
// its place. [Pump] cuts one byte stream into records until its context ends and
// then takes what is left, and a [Sink] receives them. No byte that reached the FIFO before the
// end of the context is left in it, and a sink that takes nothing for a while
// holds up no writer. The package writes no log and never reads the environment.
package logpump

import (
	"errors"
	"time"
)

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
// newline, whatever was written into the FIFO. All of it lies in memory that the
// pump uses again: it is only valid until Send returns.
type Record struct {
	// Time is when the emitter says that it made the record; zero when it does
	// not say.
	Time time.Time
	// Priority is the syslog priority, 0 (emergency) to 7 (debug).
	Priority int
	// Message is the text, without the header that the other fields were taken from.
	Message string
	// Fields are further facts, in the order of the record.
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
	// FieldAgain, "1", marks a record that may be in the log already: the pump was
	// killed while it handed the record over.
	FieldAgain = "RECORD_AGAIN"
	// FieldDropped and FieldDroppedBytes stand in the entry that tells of records
	// that were dropped in its place.
	FieldDropped      = "RECORDS_DROPPED"
	FieldDroppedBytes = "BYTES_DROPPED"
)

// ErrBusy is what a [Sink] returns when it takes nothing at the moment; the records
// are kept and offered again.
var ErrBusy = errors.New("the receiver takes no records at the moment")

// marker is a [Sink] that has the kernel mark which records the receiver has, at the moment it
// has them.
type marker interface {
	sendMarked(records []Record, marks []message) (int, error)
}

// Sink receives records.
type Sink interface {
	// Send hands records over in their order and returns how many are done with. When
	// that is not all, the error says why the next one is not: ErrBusy, after at most about
	// a tenth of a second, to be asked again, anything else to have that one counted as
	// dropped. Send is called from one goroutine at a time.
	Send([]Record) (int, error)
	Close() error
}

// Counters say what a pump has done.
type Counters struct {
	// Records were cut from the stream; pieces of one that is too long count each.
	Records uint64
	// Bytes were read.
	Bytes uint64
	// Dropped records, of DroppedBytes bytes, are not in the log: the sink refused them,
	// or took nothing for so long that the buffer was full.
	Dropped, DroppedBytes uint64
	// Split records were longer than [Options.MaxRecord] and came in pieces.
	Split uint64
	// Reopened is how often something else stood at the FIFO's path and was put right.
	Reopened uint64
}
