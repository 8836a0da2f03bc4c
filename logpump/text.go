package logpump

import (
	"io"
	"strings"
)

// text writes records as lines.
type text struct {
	w          io.Writer
	identifier string
	buf        []byte
}

// NewText returns a sink that writes each record to w as "identifier: message",
// with one Write; every line of a grouped record gets the identifier. An error of w, such as a
// closed pipe, is returned by Send, and the next record is tried again. Close
// leaves w open.
//
// When w is the process' own standard output or standard error, whoever reads
// it may go away: the caller must have SIGPIPE notified (os/signal, "SIGPIPE"), else
// the write ends the process.
func NewText(w io.Writer, identifier string) Sink {
	return &text{w: w, identifier: cleanText(identifier)}
}

func (t *text) Send(r Record) error {
	t.buf = t.buf[:0]
	for line := range strings.SplitSeq(r.Message, "\n") {
		t.buf = append(t.buf, t.identifier...)
		t.buf = append(t.buf, ": "...)
		t.buf = append(t.buf, line...)
		t.buf = append(t.buf, '\n')
	}
	_, err := t.w.Write(t.buf)
	return err
}

func (t *text) Close() error { return nil }
