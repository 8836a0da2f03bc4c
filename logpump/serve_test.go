package logpump

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// startServe serves the FIFO at path into s; stop ends it.
func startServe(t *testing.T, path string, held []*os.File, o Options, s Sink) (stop func() (Counters, error)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	var count Counters
	var err error
	go func() {
		defer close(done)
		count, err = Serve(ctx, path, held, o, s)
	}()
	stop = func() (Counters, error) {
		cancel()
		<-done
		return count, err
	}
	t.Cleanup(func() { _, _ = stop() })
	return stop
}

// wantFIFO waits until there is a FIFO at path.
func wantFIFO(t *testing.T, path string) {
	t.Helper()
	began := time.Now()
	eventually(t, "FIFO at "+path, func() bool { return CheckFIFO(path) == nil })
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("it took %v until the FIFO was there, want at most two seconds", took)
	}
}

// wantMessages waits until all of the messages are there, once.
func (k *keep) wantMessages(t *testing.T, want ...string) {
	t.Helper()
	count := func(m string) (n int) {
		for _, got := range k.messages() {
			if got == m {
				n++
			}
		}
		return n
	}
	for _, m := range want {
		eventually(t, fmt.Sprintf("record %q", m), func() bool { return count(m) > 0 })
		if n := count(m); n != 1 {
			t.Errorf("record %q is there %d times", m, n)
		}
	}
}

// TestServe guards C16: an absent FIFO is made, with its exact mode, and read.
func TestServe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fifo")
	defer syscall.Umask(syscall.Umask(0o277))
	var got keep
	opened := 0
	stop := startServe(t, path, nil, Options{Opened: func(*os.File) { opened++ }}, &got)
	wantFIFO(t, path)
	if info, err := os.Lstat(path); err != nil || info.Mode() != fs.ModeNamedPipe|0o600 {
		t.Errorf("FIFO is %v (%v), want mode 0600", info.Mode(), err)
	}
	write(t, path, "hello\n")
	got.wantMessages(t, "hello")
	if count, err := stop(); err != nil || count.Records != 1 || count.Reopened != 0 || opened != 1 {
		t.Errorf("counted %+v, opened %d, error %v", count, opened, err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Errorf("%d entries are left beside the FIFO, want none", len(left)-1)
	}
}

// TestServeRefuses guards C18.
func TestServeRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	var not *NotFIFO
	if _, err := Serve(t.Context(), path, nil, Options{}, &keep{}); !errors.As(err, &not) {
		t.Errorf("Serve of a regular file = %v, want *NotFIFO", err)
	}
}

// TestUnlinked wants a FIFO that is removed to be made anew, while those who have the old
// one open are still heard.
func TestUnlinked(t *testing.T) {
	path := newFIFO(t)
	held, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o620); err != nil {
		t.Fatal(err)
	}
	old, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	var got keep
	stop := startServe(t, path, []*os.File{held}, Options{}, &got)
	fmt.Fprintln(old, "one")
	got.wantMessages(t, "one")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	wantFIFO(t, path)
	if info, err := os.Lstat(path); err != nil || info.Mode().Perm() != 0o620 {
		t.Errorf("the new FIFO has mode %v (%v), want that of the old one", info.Mode(), err)
	}
	write(t, path, "two\n")
	fmt.Fprintln(old, "three")
	got.wantMessages(t, "two", "three", "the log FIFO "+path+" was removed: made it anew")
	if count, err := stop(); err != nil || count.Reopened != 1 {
		t.Errorf("counted %+v, error %v, want one reopening", count, err)
	}
}

// TestReplacedByFIFO wants both to be read.
func TestReplacedByFIFO(t *testing.T) {
	path, other := newFIFO(t), newFIFO(t)
	var got keep
	stop := startServe(t, path, nil, Options{}, &got)
	write(t, path, "one\n")
	got.wantMessages(t, "one")
	w, err := os.OpenFile(other, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	fmt.Fprintln(w, "in it already")
	if err := os.Rename(other, path); err != nil {
		t.Fatal(err)
	}
	got.wantMessages(t, "in it already")
	write(t, path, "two\n")
	got.wantMessages(t, "two")
	if count, err := stop(); err != nil || count.Reopened != 1 {
		t.Errorf("counted %+v, error %v, want one reopening", count, err)
	}
}

// TestReplacedByFile wants what a writer put into a regular file, as runsc makes one, before and
// after the FIFO is back; then the file is gone.
func TestReplacedByFile(t *testing.T) {
	path := newFIFO(t)
	var got keep
	stop := startServe(t, path, nil, Options{}, &got)
	write(t, path, "one\n")
	got.wantMessages(t, "one")
	file := filepath.Join(filepath.Dir(path), "file")
	w, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(w, "in the file")
	if err := os.Rename(file, path); err != nil {
		t.Fatal(err)
	}
	wantFIFO(t, path)
	fmt.Fprintln(w, "still in the file")
	write(t, path, "in the FIFO\n")
	got.wantMessages(t, "in the file", "still in the file", "in the FIFO")
	fmt.Fprint(w, "at last")
	w.Close()
	got.wantMessages(t, "at last")
	eventually(t, "end of the file", func() bool {
		left, err := os.ReadDir(filepath.Dir(path))
		return err == nil && len(left) == 1
	})
	if count, err := stop(); err != nil || count.Reopened != 1 {
		t.Errorf("counted %+v, error %v, want one reopening", count, err)
	}
}

// TestReplacedByLink guards C18 at any time: what cannot be put right is left alone and said.
func TestReplacedByLink(t *testing.T) {
	path := newFIFO(t)
	w, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var got keep
	stop := startServe(t, path, nil, Options{}, &got)
	link := filepath.Join(filepath.Dir(path), "link")
	if err := os.Symlink("/etc/passwd", link); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(w, "one")
	got.wantMessages(t, "one")
	if err := os.Rename(link, path); err != nil {
		t.Fatal(err)
	}
	got.wantMessages(t, fmt.Sprintf("put log FIFO back: open FIFO %q: it is a symbolic link", path))
	fmt.Fprintln(w, "two")
	got.wantMessages(t, "two")
	if count, err := stop(); err != nil || count.Reopened != 0 {
		t.Errorf("counted %+v, error %v", count, err)
	}
}

// TestHeldAndReplaced wants a FIFO that was replaced while nobody watched to be read, like
// the one that the service manager held meanwhile.
func TestHeldAndReplaced(t *testing.T) {
	path := newFIFO(t)
	held, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(held, "in the old one")
	if err := errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600)); err != nil {
		t.Fatal(err)
	}
	var got keep
	startServe(t, path, []*os.File{held}, Options{}, &got)
	got.wantMessages(t, "in the old one")
	write(t, path, "in the new one\n")
	got.wantMessages(t, "in the new one")
	if n := openFDs(t, path); n != 1 {
		t.Errorf("the FIFO is open %d times, want once", n)
	}
}

// openFDs counts this process' descriptors of what is at path.
func openFDs(t *testing.T, path string) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, fd := range fds {
		if target, _ := os.Readlink("/proc/self/fd/" + fd.Name()); target == path {
			n++
		}
	}
	return n
}

var switches = regexp.MustCompile(`ctxt_switches:\s+(\d+)`)

// TestIdle wants a process that serves a quiet FIFO not to wake up at all.
func TestIdle(t *testing.T) {
	if testing.Short() {
		t.Skip("takes ten seconds")
	}
	t.Parallel()
	path, dir := newFIFO(t), t.TempDir()
	out := filepath.Join(dir, "out")
	p := startHelper(t, path, filepath.Join(dir, "spool"), out)
	write(t, path, "I0131 15:04:05.000001 7 a.go:1] one\n")
	eventually(t, "first record", func() bool { data, _ := os.ReadFile(out); return len(data) > 0 })
	time.Sleep(2 * time.Second)
	before := allSwitches(t, p.Process.Pid)
	time.Sleep(10 * time.Second)
	if after := allSwitches(t, p.Process.Pid); after != before {
		t.Errorf("%d context switches in ten idle seconds, want none", after-before)
	}
}

// allSwitches adds up the context switches of all threads of a process.
func allSwitches(t *testing.T, pid int) int {
	t.Helper()
	files, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/status")
	if err != nil || len(files) == 0 {
		t.Fatalf("threads of %d: %v", pid, err)
	}
	sum := 0
	for _, file := range files {
		text, _ := os.ReadFile(file)
		for _, m := range switches.FindAllStringSubmatch(string(text), -1) {
			n, _ := strconv.Atoi(m[1])
			sum += n
		}
	}
	return sum
}

// TestMemory wants the memory of a pump to stay flat whatever goes through it.
func TestMemory(t *testing.T) {
	path, dir := newFIFO(t), t.TempDir()
	p := startHelper(t, path, filepath.Join(dir, "spool"), "/dev/null")
	wantFIFO(t, path)
	text := strings.Repeat("I0131 15:04:05.000001 7 a.go:1] "+strings.Repeat("x", 67)+"\n", 40)
	w, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	send := func(n int) {
		for range n {
			if _, err := w.WriteString(text); err != nil {
				t.Fatal(err)
			}
		}
	}
	send(100)
	before := peak(t, p.Process.Pid)
	send(20_000) // 80 MB
	if after := peak(t, p.Process.Pid); after-before > 16<<10 {
		t.Errorf("80 MB of log raised the peak from %d to %d KiB", before, after)
	}
}

// peak is the most memory that a process has used, in KiB.
func peak(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(text))
	n, err := strconv.Atoi(fields[slices.Index(fields, "VmHWM:")+1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestReport wants the counters after each burst, without a timer while nothing happens.
func TestReport(t *testing.T) {
	reports := make(chan Counters, 10)
	var got keep
	path, _ := startPump(t, Options{Report: func(c Counters) { reports <- c }}, &got)
	write(t, path, "one\n")
	if c := <-reports; c.Records != 1 || c.Bytes != 4 {
		t.Errorf("reported %+v after one record", c)
	}
	write(t, path, "two\n")
	write(t, path, "three\n")
	if c := <-reports; c.Records != 3 {
		t.Errorf("reported %+v after three records", c)
	}
}
