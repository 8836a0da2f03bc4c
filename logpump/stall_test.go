package logpump

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
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
	const lines = 80_000 // far more than the FIFO holds
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

// doubt makes a spool look as if its pump was killed while it handed over n records to a sink that marks none.
func doubt(t *testing.T, path string, n int) {
	t.Helper()
	m, err := newStore(path, 2*Options{}.withDefaults().Backlog)
	if err != nil {
		t.Fatal(err)
	}
	start, _ := m.span()
	places := []splitter{{off: start}}
	for i := range n {
		places = append(places, splitter{off: start + 2*(i+1)})
	}
	m.beginBatch(places, n, false)
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

// TestRecover wants what a killed pump had handed over to be told from what it had not, also when its
// successor is killed before it has begun.
func TestRecover(t *testing.T) {
	for _, tt := range []struct {
		why                string
		marked             bool
		sent               int
		wantStart, inDoubt int
	}{
		{"nothing was sent", true, 0, 1, 0},
		{"two of three were sent", true, 2, 5, 0},
		{"all were sent", true, 3, 7, 0},
		{"nobody marks what was sent", false, 0, 1, 3},
	} {
		m, err := newStore(filepath.Join(t.TempDir(), "spool"), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		copy(m.bytes, "\na\nb\nc\nd\n")
		m.setSpan(1, 9)
		m.beginBatch([]splitter{{off: 1}, {off: 3}, {off: 5}, {off: 7}}, 3, tt.marked)
		for i := range tt.sent {
			m.marks()[i].length = 0 // as for a message with nothing but a file
		}
		for range 2 {
			if start, end, doubt := m.recover(); start != tt.wantStart || end != 9 || doubt != tt.inDoubt {
				t.Errorf("%s: found %d to %d, %d in doubt: expected %d to 9, %d in doubt", tt.why, start, end, doubt, tt.wantStart, tt.inDoubt)
			}
		}
		if err := m.close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestKilledInMove wants what a move has left behind not to be taken for bytes that were read.
func TestKilledInMove(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spool")
	m, err := newStore(path, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	copy(m.bytes, "old\nold\nnew\n")
	m.move(8, 12)
	if got := string(m.bytes[:12]); got != "new\n\x00\x00\x00\x00\x00\x00\x00\x00" {
		t.Errorf("after a move the bytes are %q", got)
	}
	copy(m.bytes, "new\nold\nnew\n") // as it is before the old place is zero
	m.word(staleAt).Store(12)
	if err := m.close(); err != nil {
		t.Fatal(err)
	}
	if m, err = newStore(path, 1<<20); err != nil {
		t.Fatal(err)
	}
	defer m.close()
	if start, end, _ := m.recover(); start != 0 || end != 4 {
		t.Errorf("found %d to %d, want 0 to 4", start, end)
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
	out := filepath.Join(dir, "out")
	n := killAgainAndAgain(t, path, func() *exec.Cmd { return startHelper(t, path, filepath.Join(dir, "spool"), out) }, func(last string) bool {
		data, _ := os.ReadFile(out)
		return strings.Contains(string(data), last)
	})
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	wantOnce(t, string(data), n)
}

// TestKilledBeforeJournal wants every line in journald's socket once, without a doubt.
func TestKilledBeforeJournal(t *testing.T) {
	path, dir := newFIFO(t), t.TempDir()
	socket, conn := journald(t)
	var mu sync.Mutex
	var got strings.Builder
	received := make(chan struct{})
	go func() {
		defer close(received)
		for buf := make([]byte, 1<<16); ; {
			n, err := conn.Read(buf)
			if err != nil {
				return
			}
			mu.Lock()
			got.WriteString(entryMessage(string(buf[:n])))
			mu.Unlock()
		}
	}()
	n := killAgainAndAgain(t, path, func() *exec.Cmd { return startHelperTo(t, toJournal, path, filepath.Join(dir, "spool"), socket) }, func(last string) bool {
		mu.Lock()
		defer mu.Unlock()
		return strings.Contains(got.String(), last)
	})
	conn.Close()
	<-received
	if strings.Contains(got.String(), FieldAgain) {
		t.Error("records are marked as doubtful")
	}
	wantOnce(t, got.String(), n)
}

// entryMessage returns an entry's message and, if it is marked as doubtful, that.
func entryMessage(entry string) string {
	_, text, _ := strings.Cut(entry, "MESSAGE=")
	if strings.Contains(entry, FieldAgain) {
		text = strings.Replace(text, "\n", " "+FieldAgain+"\n", 1)
	}
	return text
}

// killAgainAndAgain starts a pump and kills it many times while lines are written. It returns how many, once
// the last is there.
func killAgainAndAgain(t *testing.T, path string, start func() *exec.Cmd, there func(last string) bool) int {
	t.Helper()
	keep, err := Open(path) // as the socket unit does
	if err != nil {
		t.Fatal(err)
	}
	defer keep.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	written := make(chan int)
	go func() { written <- writeLines(ctx, t, path) }()
	kill := func(p *exec.Cmd) {
		_ = p.Process.Kill()
		_ = p.Wait()
	}
	for range 30 {
		p := start()
		time.Sleep(40 * time.Millisecond)
		kill(p)
	}
	cancel()
	p := start() // the writer may wait for room
	n := <-written
	eventually(t, "last line", func() bool { return there(fmt.Sprintf("line %d", n-1)) })
	kill(p)
	return n
}

// writeLines writes numbered lines until the context ends, and returns how many.
func writeLines(ctx context.Context, t *testing.T, path string) int {
	w, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer w.Close()
	n := 0
	for ; ctx.Err() == nil; n++ {
		fmt.Fprintf(w, "I0131 15:04:05.000001 7 a.go:1] line %d\n", n)
		if n%50 == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	return n
}

// wantOnce wants the lines 0 to n-1 in the log, once each, or more often if those
// after the first are marked.
func wantOnce(t *testing.T, log string, n int) {
	t.Helper()
	seen, again := make([]int, n), 0
	for line := range strings.Lines(log) {
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
