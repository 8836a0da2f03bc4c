package logpump

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// stalling is a sink that is busy while it is told to be.
type stalling struct {
	keep
	busy atomic.Bool
}

func (s *stalling) Send(r []Record) (int, error) {
	if s.busy.Load() {
		return 0, ErrBusy
	}
	return s.keep.Send(r)
}

// TestStall wants what fits into the backlog to be kept, in its order, while the log takes
// nothing, and no writer to wait.
func TestStall(t *testing.T) {
	var s stalling
	s.busy.Store(true)
	path, stop := startPump(t, Options{}, &s)
	const lines = 20_000 // far more than the FIFO holds
	for i := range lines {
		write(t, path, fmt.Sprintf("I0131 15:04:05.000001 7 a.go:1] line %d\n", i))
	}
	s.busy.Store(false)
	count := stop()
	messages := s.messages()
	if len(messages) != lines || count.Dropped != 0 || count.Records != lines {
		t.Fatalf("got %d records, counted %+v, want %d and none dropped", len(messages), count, lines)
	}
	for i, m := range messages {
		if want := fmt.Sprintf("line %d", i); m != want {
			t.Fatalf("record %d is %q, want %q", i, m, want)
		}
	}
}

// TestStallDrops wants the oldest records to be dropped when the backlog is full, one
// entry that tells how many, and every record to be there or counted.
func TestStallDrops(t *testing.T) {
	var s stalling
	s.busy.Store(true)
	path, stop := startPump(t, Options{MaxRecord: 1000, Backlog: 300_000}, &s)
	const lines = 20_000
	bytes := 0
	for i := range lines {
		line := fmt.Sprintf("line %d %s\n", i, strings.Repeat("x", 80))
		bytes += len(line)
		write(t, path, line)
	}
	s.busy.Store(false)
	count := stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	notice, rest := s.records[0], s.records[1:]
	if !strings.HasPrefix(notice.Message, "dropped ") || notice.Priority != Warning || len(notice.Fields) != 2 {
		t.Fatalf("the first record is %+v, want the entry about what was dropped", notice)
	}
	dropped, err := strconv.Atoi(notice.Fields[0].Value)
	if err != nil || dropped == 0 || uint64(dropped) != count.Dropped || dropped+len(rest) != lines || count.Records != lines {
		t.Errorf("entry %+v, then %d records; counted %+v, want %d in all", notice.Fields, len(rest), count, lines)
	}
	left := 0
	for i, r := range rest {
		if !strings.HasPrefix(r.Message, fmt.Sprintf("line %d ", dropped+i)) {
			t.Fatalf("record %d behind the gap is %q, want number %d", i, r.Message, dropped+i)
		}
		left += len(r.Message) + 1
	}
	if told := notice.Fields[1].Value; told != strconv.Itoa(bytes-left) {
		t.Errorf("entry tells of %s bytes, want %d", told, bytes-left)
	}
}

// TestStallAtTheEnd wants a pump to end although the log takes nothing.
func TestStallAtTheEnd(t *testing.T) {
	var s stalling
	s.busy.Store(true)
	path, stop := startPump(t, Options{Patience: 50 * time.Millisecond}, &s)
	write(t, path, "a\nb")
	time.Sleep(20 * time.Millisecond)
	if count := stop(); count.Dropped != 2 || count.DroppedBytes != 3 {
		t.Errorf("counted %+v, want two records of three bytes to be dropped", count)
	}
}

// TestStuckReader wants a terminal or pipe whose reader has stopped to hold up nobody.
func TestStuckReader(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	path, stop := startPump(t, Options{MaxRecord: 1000, Backlog: 300_000, Patience: 10 * time.Millisecond}, NewText(w, "runsc"))
	for range 100 {
		write(t, path, strings.Repeat("0123456789\n", 1000))
	}
	if count := stop(); count.Records != 100_000 || count.Dropped == 0 {
		t.Errorf("counted %+v, want 100000 records, most of them dropped", count)
	}
}

// TestSpool wants what a pump could not hand over to be handed over by the next, and
// what may be in the log already to be marked.
func TestSpool(t *testing.T) {
	spool := filepath.Join(t.TempDir(), "spool")
	var s stalling
	s.busy.Store(true)
	path, stop := startPump(t, Options{Spool: spool, Patience: 10 * time.Millisecond}, &s)
	write(t, path, "a\nb\nc")
	time.Sleep(50 * time.Millisecond)
	if count := stop(); count.Dropped != 0 {
		t.Errorf("counted %+v, want nothing to be dropped", count)
	}
	doubt(t, spool, 1)
	s.busy.Store(false)
	path, stop = startPump(t, Options{Spool: spool}, &s)
	write(t, path, "d\n")
	stop()
	if got := s.messages(); strings.Join(got, " ") != "a b cd" {
		t.Errorf("got %q", got)
	}
	if f := s.records[0].Fields; len(f) != 1 || f[0] != (Field{FieldAgain, "1"}) || len(s.records[1].Fields) != 0 {
		t.Errorf("fields are %v and %v, want only the first to be marked", f, s.records[1].Fields)
	}
}

// doubt makes a spool look as if its pump was killed while it handed over n records.
func doubt(t *testing.T, path string, n int) {
	t.Helper()
	m, err := newStore(path, 2*Options{}.withDefaults().Backlog)
	if err != nil {
		t.Fatal(err)
	}
	m.setDoubt(n)
	if err := m.close(); err != nil {
		t.Fatal(err)
	}
}

// TestSpoolOfAnother wants files that are no spool, or one of another form, to be begun anew, and one
// in use to be refused.
func TestSpoolOfAnother(t *testing.T) {
	for name, content := range map[string]string{"empty": "", "text": strings.Repeat("text\n", 5000), "torn": spoolMagic + strings.Repeat("\xff", 5000)} {
		path := filepath.Join(t.TempDir(), "spool")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := newStore(path, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if start, end, again := m.recover(); start != 0 || end != 0 || again != 0 {
			t.Errorf("%s: found %d to %d, %d in doubt: expected nothing", name, start, end, again)
		}
		if _, err := newStore(path, 1<<20); err == nil {
			t.Error("a spool was opened twice")
		}
		if err := m.close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestUncounted wants bytes that a killed pump had read, but not counted, to be found.
func TestUncounted(t *testing.T) {
	m, err := newStore(filepath.Join(t.TempDir(), "spool"), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	copy(m.bytes, "0123456789\n")
	m.setSpan(2, 4)
	if start, end, _ := m.recover(); start != 2 || end != 11 {
		t.Errorf("found %d to %d, want 2 to 11", start, end)
	}
}

// TestKilled kills a pump again and again, and wants every line once, but for those
// that are marked as doubtful.
func TestKilled(t *testing.T) {
	path, dir := newFIFO(t), t.TempDir()
	keep, err := Open(path) // as the socket unit does
	if err != nil {
		t.Fatal(err)
	}
	defer keep.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := filepath.Join(dir, "out")
	written := make(chan int)
	go func() {
		w, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Error(err)
		}
		defer w.Close()
		n := 0
		for ; ctx.Err() == nil; n++ {
			fmt.Fprintf(w, "I0131 15:04:05.000001 7 a.go:1] line %d\n", n)
			if n%50 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		written <- n
	}()
	for range 30 {
		p := startHelper(t, path, filepath.Join(dir, "spool"), out)
		time.Sleep(40 * time.Millisecond)
		_ = p.Process.Kill()
		_ = p.Wait()
	}
	cancel()
	p := startHelper(t, path, filepath.Join(dir, "spool"), out) // the writer may wait for room
	n := <-written
	eventually(t, "last line", func() bool {
		data, _ := os.ReadFile(out)
		return strings.Contains(string(data), fmt.Sprintf("line %d", n-1))
	})
	_ = p.Process.Kill()
	_ = p.Wait()
	wantOnce(t, out, n)
}

// wantOnce wants the lines 0 to n-1 in the file, once each, or more often if those
// after the first are marked.
func wantOnce(t *testing.T, file string, n int) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	seen, again := make([]int, n), 0
	for line := range strings.Lines(string(data)) {
		var number int
		if _, err := fmt.Sscanf(line, "line %d", &number); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		if strings.Contains(line, FieldAgain) {
			if again++; seen[number] > 0 {
				continue
			}
		}
		seen[number]++
	}
	for number, times := range seen {
		if times != 1 {
			t.Errorf("line %d of %d is there %d times", number, n, times)
		}
	}
	t.Logf("%d lines, %d of them marked as doubtful", n, again)
}
