package logpump

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestManyWriters guards C19: a hundred writers, one after the other, in order.
func TestManyWriters(t *testing.T) {
	var got keep
	path, stop := startPump(t, Options{}, &got)
	for i := range 100 {
		write(t, path, fmt.Sprintf("line %d\n", i))
	}
	count := stop()
	messages := got.messages()
	if len(messages) != 100 || count.Records != 100 {
		t.Fatalf("got %d lines, counted %d, want 100", len(messages), count.Records)
	}
	for i, m := range messages {
		if want := fmt.Sprintf("line %d", i); m != want {
			t.Fatalf("line %d is %q, want %q", i, m, want)
		}
	}
}

// TestIdleCostsNothing guards C19: between the lines the pump sleeps.
func TestIdleCostsNothing(t *testing.T) {
	var got keep
	path, _ := startPump(t, Options{}, &got)
	write(t, path, "one\n")
	eventually(t, "first line", func() bool { return len(got.messages()) == 1 })
	before := cpuTime(t)
	time.Sleep(time.Second)
	// A pump that polls every 10 ms costs several milliseconds in a second.
	if used := cpuTime(t) - before; used > 20*time.Millisecond {
		t.Errorf("an idle second cost %v of CPU", used)
	}
}

func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestIdleFlush wants a line without a newline after a second of silence.
func TestIdleFlush(t *testing.T) {
	var got keep
	path, stop := startPump(t, Options{Idle: 50 * time.Millisecond}, &got)
	write(t, path, "no newline")
	eventually(t, "idle flush", func() bool { return len(got.messages()) == 1 })
	write(t, path, "more\n")
	stop()
	if m := got.messages(); len(m) != 2 || m[0] != "no newline" || m[1] != "more" {
		t.Errorf("got %q", m)
	}
}

// TestDrain wants everything that reached the FIFO before the end, even what the
// pump had no time to read.
func TestDrain(t *testing.T) {
	path := newFIFO(t)
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	write(t, path, strings.Repeat("0123456789\n", 5000)+"the last one")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var got keep
	count, err := Pump(ctx, f, Options{}, &got)
	if err != nil {
		t.Fatal(err)
	}
	m := got.messages()
	if len(m) != 5001 || m[5000] != "the last one" || count.Bytes != 5000*11+12 {
		t.Errorf("got %d lines and counted %d bytes; the last is %q", len(m), count.Bytes, m[len(m)-1])
	}
}

// TestEndOfPipe wants Pump to return at the end of a pipe that all writers closed.
func TestEndOfPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := w.WriteString("a\nb"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	var got keep
	if _, err := Pump(t.Context(), r, Options{}, &got); err != nil {
		t.Fatal(err)
	}
	if m := got.messages(); len(m) != 2 || m[1] != "b" {
		t.Errorf("got %q", m)
	}
}

// TestBrokenSink guards C21: a reader of ours that goes away neither stops the drain
// nor blocks the writers.
func TestBrokenSink(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r.Close()
	path, stop := startPump(t, Options{}, NewText(w, "runsc"))
	// More than a FIFO holds: a pump that had stopped would block this.
	for range 100 {
		write(t, path, strings.Repeat("0123456789\n", 1000))
	}
	count := stop()
	if count.Records != 100_000 || count.Dropped != 100_000 {
		t.Errorf("counted %+v, want 100000 records, all dropped", count)
	}
}

// TestTextSink wants what an operator needs on each line, and nothing that the record does not say.
func TestTextSink(t *testing.T) {
	at := time.Date(2026, 1, 31, 15, 4, 5, 6_000_000, time.UTC)
	for _, tt := range []struct {
		why    string
		record Record
		want   string
	}{
		{"a line of text is only a line", Record{Priority: Info, Message: "hello"}, "runsc: hello\n"},
		{
			"time and level as its maker said",
			Record{Priority: Warning, Time: at, Message: "low"},
			"runsc: 2026-01-31T15:04:05.006Z warning: low\n",
		},
		{
			"several processes write at once",
			Record{Priority: Debug, Message: "x", Fields: []Field{{FieldFile, "a.go"}, {FieldPID, "7"}}},
			"runsc[7]: debug: x\n",
		},
		{
			"further lines are told apart from other programs'",
			Record{Priority: Critical, Time: at, Message: "panic: x\n\tstack", Fields: []Field{{FieldPID, "7"}}},
			"runsc[7]: 2026-01-31T15:04:05.006Z critical: panic: x\nrunsc[7]: \tstack\n",
		},
		{"a piece is no record", Record{Priority: Info, Message: "x", Fields: []Field{{FieldPart, "2/2"}}}, "runsc: [part 2/2] x\n"},
		{"nor is what may be there already", Record{Priority: Error, Message: "x", Fields: []Field{{FieldAgain, "1"}}}, "runsc: error: [again] x\n"},
	} {
		var b strings.Builder
		if err := send(NewText(&b, "runsc"), tt.record); err != nil {
			t.Fatal(err)
		}
		if b.String() != tt.want {
			t.Errorf("%s: wrote %q, want %q", tt.why, b.String(), tt.want)
		}
	}
}

// TestJSONSink wants one object on one line, with keys as log/slog has them.
func TestJSONSink(t *testing.T) {
	at := time.Date(2026, 1, 31, 15, 4, 5, 0, time.UTC)
	var b strings.Builder
	s := NewJSON(&b, "runsc")
	if err := send(s, Record{Priority: Critical, Time: at, Message: "a \"<b>\"\n\tc ü", Fields: []Field{{FieldPID, "7"}}}); err != nil {
		t.Fatal(err)
	}
	want := `{"time":"2026-01-31T15:04:05Z","level":"ERROR","identifier":"runsc","msg":"a \"<b>\"\n\tc ü","SYSLOG_PID":"7"}` + "\n"
	if b.String() != want {
		t.Errorf("wrote %q, want %q", b.String(), want)
	}
	b.Reset()
	if err := send(s, Record{Priority: Warning}); err != nil {
		t.Fatal(err)
	}
	var object struct{ Time, Level string }
	if err := json.Unmarshal([]byte(b.String()), &object); err != nil || object.Level != "WARN" {
		t.Errorf("wrote %q: %v", b.String(), err)
	}
	if _, err := time.Parse(time.RFC3339Nano, object.Time); err != nil {
		t.Errorf("a record without a time: %v", err)
	}
}

func BenchmarkPump(b *testing.B) {
	path := newFIFO(b)
	f, err := Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	line := "I0131 15:04:05.000000       7 boot.go:12] " + strings.Repeat("x", 57) + "\n"
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan Counters)
	go func() {
		count, _ := Pump(ctx, f, Options{}, nothing{})
		done <- count
	}()
	w, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := w.WriteString(line); err != nil {
			b.Fatal(err)
		}
	}
	w.Close()
	cancel()
	if count := <-done; count.Records != uint64(b.N) {
		b.Fatalf("%d records, want %d", count.Records, b.N)
	}
}

type nothing struct{}

func (nothing) Send(r []Record) (int, error) { return len(r), nil }
func (nothing) Close() error                 { return nil }
