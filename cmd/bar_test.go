package cmd

import (
	"bytes"
	"testing"
	"time"

	"seedbed/preseed"
)

// TestBarLine shows bytes and bundles done, the rate and the time left, within the terminal's width.
func TestBarLine(t *testing.T) {
	half := preseed.Event{Bundles: 4, BundlesDone: 1, Bytes: 200 << 20, BytesDone: 100 << 20}
	cases := []struct {
		name    string
		event   preseed.Event
		elapsed time.Duration
		width   int
		want    string
	}{
		{"nothing known yet", preseed.Event{Bundles: 4}, time.Minute, 80, "0/4 bundles"},
		{"too early for a rate", half, time.Millisecond, 80, "[##########..........] 1/4 bundles  100.0/200.0 MiB"},
		{"under way", half, 10 * time.Second, 90, "[##########..........] 1/4 bundles  100.0/200.0 MiB  10.0 MiB/s  10s left"},
		{"narrow terminal", half, 10 * time.Second, 10, "[#########"},
		{"no terminal to speak of", half, 10 * time.Second, -1, ""},
		{"more than was announced", preseed.Event{Bundles: 1, Bytes: 1, BytesDone: 2}, 0, 80, "[####################] 0/1 bundles  0.0/0.0 MiB"},
	}
	for _, c := range cases {
		if got := barLine(c.event, c.elapsed, c.width); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestTerminalKeepsLogLines puts what is logged above the line of progress, and takes the line away
// at the end.
func TestTerminalKeepsLogLines(t *testing.T) {
	var screen bytes.Buffer
	term := &terminal{w: &screen}
	_, _ = term.Write([]byte("before\n"))
	term.set("1/2")
	_, _ = term.Write([]byte("warning\n"))
	term.set("2/2")
	term.set("2/2")
	term.set("")
	want := "before\n" + eraseLine + "1/2" + eraseLine + "warning\n" + "1/2" + eraseLine + "2/2" + eraseLine
	if got := screen.String(); got != want {
		t.Errorf("screen %q, want %q", got, want)
	}
}
