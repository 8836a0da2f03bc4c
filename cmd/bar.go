package cmd

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"seedbed/preseed"
)

// barEvery is the least time between two pictures of the progress on a terminal.
const barEvery = 100 * time.Millisecond

// terminal is a standard error that has a line of progress at its end. Whatever else is written
// stands above it.
type terminal struct {
	w    io.Writer
	mu   sync.Mutex
	line string
}

// newTerminal returns the terminal that w is, nil when it is none that lines can be rewritten on.
func newTerminal(w io.Writer) *terminal {
	file, ok := w.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return nil
	}
	if _, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS); err != nil {
		return nil
	}
	return &terminal{w: w}
}

// Write puts the line of progress below what is written.
func (t *terminal) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.line == "" {
		return t.w.Write(b)
	}
	if _, err := io.WriteString(t.w, eraseLine); err != nil {
		return 0, err
	}
	n, err := t.w.Write(b)
	if err == nil && bytes.HasSuffix(b, []byte("\n")) {
		_, err = io.WriteString(t.w, t.line)
	}
	return n, err
}

// eraseLine goes to the begin of the line and takes away what is there (ECMA-48, EL).
const eraseLine = "\r\x1b[K"

// set shows another line of progress; "" takes it away.
func (t *terminal) set(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if line == t.line {
		return
	}
	t.line = line
	_, _ = io.WriteString(t.w, eraseLine+line)
}

// columns is the terminal's width, 80 where it does not say.
func (t *terminal) columns() int {
	if file, ok := t.w.(*os.File); ok {
		if size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 {
			return int(size.Col)
		}
	}
	return 80
}

// bar draws an import's progress and measures its rate.
type bar struct {
	terminal *terminal
	begin    time.Time // when bytes began to move
	drawn    time.Time
}

func (b *bar) show(e preseed.Event, now time.Time) {
	if b.begin.IsZero() && e.Bytes > 0 {
		b.begin = now
	}
	if e.Kind != preseed.EventBundle && now.Sub(b.drawn) < barEvery {
		return
	}
	b.drawn = now
	b.terminal.set(barLine(e, now.Sub(b.begin), b.terminal.columns()-1))
}

// barLine is the picture after elapsed time: a bar, and in words bundles and bytes done, the rate and
// the time that is left. It is cut to width columns.
func barLine(e preseed.Event, elapsed time.Duration, width int) string {
	line := fmt.Sprintf("%d/%d bundles", e.BundlesDone, e.Bundles)
	if e.Bytes > 0 {
		line = fmt.Sprintf("%s %s  %.1f/%.1f MiB", picture(e), line, mebibytes(e.BytesDone), mebibytes(e.Bytes))
	}
	if elapsed >= time.Second && e.BytesDone > 0 && e.Bytes > 0 {
		rate := float64(e.BytesDone) / elapsed.Seconds()
		left := time.Duration(float64(e.Bytes-e.BytesDone) / rate * float64(time.Second)).Round(time.Second)
		line += fmt.Sprintf("  %.1f MiB/s  %s left", rate/(1<<20), left)
	}
	return line[:min(len(line), max(width, 0))]
}

// picture is the share of the bytes that are done.
func picture(e preseed.Event) string {
	const size = 20
	done := int(min(e.BytesDone, e.Bytes) * size / e.Bytes)
	return "[" + strings.Repeat("#", done) + strings.Repeat(".", size-done) + "]"
}
