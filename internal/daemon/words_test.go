package daemon

import (
	"strings"
	"testing"
	"time"

	"seedbed/logpump"
)

func TestLastWords(t *testing.T) {
	long := strings.Repeat("ä", longestWord)
	info := func(text string) logpump.Record { return logpump.Record{Message: text, Priority: logpump.Info} }
	bad := func(text string) logpump.Record { return logpump.Record{Message: text, Priority: logpump.Error} }
	for _, tt := range []struct {
		name         string
		said         []logpump.Record
		want, errors string
	}{
		{"nothing", nil, "", ""},
		{"the last record is all there is", []logpump.Record{info("one"), info("two")}, "two", ""},
		{"errors and the last record", []logpump.Record{bad("e"), info("two")}, "e; two", "e"},
		{"the last error is the last record", []logpump.Record{info("one"), bad("e")}, "e", "e"},
		{"an error that repeats is told once, in its last place", []logpump.Record{bad("e"), bad("f"), bad("e")}, "f; e", "f; e"},
		{"three errors", []logpump.Record{bad("a"), bad("b"), bad("c"), bad("d")}, "b; c; d", "b; c; d"},
		{"a long line is cut between characters", []logpump.Record{bad(long)}, long[:longestWord] + "…", long[:longestWord] + "…"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			words := &lastWords{Sink: new(log)}
			if n, err := words.Send(tt.said); n != len(tt.said) || err != nil {
				t.Errorf("Send = %d, %v", n, err)
			}
			if got := words.of(time.Hour); got != tt.want {
				t.Errorf("found %q, want %q", got, tt.want)
			}
			if got := words.errorsOf(time.Hour); got != tt.errors {
				t.Errorf("found errors %q, want %q", got, tt.errors)
			}
			if got := words.errorsOf(0); got != "" {
				t.Errorf("found old errors %q, want none", got)
			}
		})
	}
}
