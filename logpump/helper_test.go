package logpump

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// keep is a sink that keeps what it gets.
type keep struct {
	mu      sync.Mutex
	records []Record
}

func (k *keep) Send(records []Record) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range records {
		k.records = append(k.records, clone(r))
	}
	return len(records), nil
}

// clone returns a record that outlives the call of Send.
func clone(r Record) Record {
	r.Message = strings.Clone(r.Message)
	r.Fields = slices.Clone(r.Fields)
	for i := range r.Fields {
		r.Fields[i].Value = strings.Clone(r.Fields[i].Value)
	}
	return r
}

func (k *keep) Close() error { return nil }

func (k *keep) messages() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := make([]string, len(k.records))
	for i, r := range k.records {
		out[i] = r.Message
	}
	return out
}

// newFIFO makes a FIFO and returns its path.
func newFIFO(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// startPump pumps a new FIFO into s; stop ends it and returns what Pump returned.
func startPump(t *testing.T, o Options, s Sink) (path string, stop func() Counters) {
	t.Helper()
	path = newFIFO(t)
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	type result struct {
		count Counters
		err   error
	}
	done := make(chan result, 1)
	go func() {
		count, err := Pump(ctx, f, o, s)
		done <- result{count, err}
	}()
	var once sync.Once
	var count Counters
	stop = func() Counters {
		once.Do(func() {
			cancel()
			r := <-done
			if r.err != nil {
				t.Errorf("Pump: %v", r.err)
			}
			count = r.count
			_ = f.Close()
		})
		return count
	}
	t.Cleanup(func() { stop() })
	return path, stop
}

// write opens the FIFO as a writer, writes, and closes.
func write(t testing.TB, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// eventually waits until f holds.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if f() {
			return
		}
	}
	t.Fatalf("%s: not within 10 s", what)
}

// records cuts input, fed in pieces of the given size, into records.
func records(input string, size int, o Options) []Record {
	o = o.withDefaults()
	s := splitter{format: o.Format, max: o.MaxRecord}
	p := parser{format: o.Format, prefix: o.FieldPrefix, now: fixedNow}
	var out []Record
	take := func(flush bool) {
		for r, ok := s.next(flush); ok; r, ok = s.next(flush) {
			out = append(out, clone(p.parse(r)))
		}
	}
	for chunk := range slices.Chunk([]byte(input), size) {
		feed(&s, chunk)
		take(false)
	}
	take(true)
	return out
}

// feed gives the splitter more to cut.
func feed(s *splitter, p []byte) {
	s.buf = append(s.buf[s.off:len(s.buf):len(s.buf)], p...)
	s.off = 0
}

func fixedNow() time.Time { return time.Date(2026, 2, 1, 12, 0, 0, 0, time.Local) }
