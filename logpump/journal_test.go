package logpump

import (
	"bytes"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// journald is a receiver at a path of the test's own; it keeps nothing but the socket.
func journald(t testing.TB) (string, *net.UnixConn) {
	t.Helper()
	dir, err := os.MkdirTemp("", "jd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "socket")
	return path, listen(t, path)
}

func listen(t testing.TB, path string) *net.UnixConn {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// send sends one record.
func send(s Sink, r Record) error {
	_, err := s.Send([]Record{r})
	return err
}

func receive(t *testing.T, conn *net.UnixConn) string {
	t.Helper()
	buf, oob := make([]byte, 1<<20), make([]byte, 1024)
	if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	n, oobn, _, _, err := conn.ReadMsgUnix(buf, oob)
	if err != nil {
		t.Fatal(err)
	}
	if oobn == 0 {
		return string(buf[:n])
	}
	messages, err := syscall.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		t.Fatal(err)
	}
	fds, err := syscall.ParseUnixRights(&messages[0])
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fds[0]), "entry")
	defer f.Close()
	n, err = f.ReadAt(buf, 0)
	if n == 0 {
		t.Fatal(err)
	}
	return string(buf[:n])
}

func TestJournalEntry(t *testing.T) {
	path, conn := journald(t)
	s, err := newJournal(path, "runsc")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	n, err := s.Send([]Record{{
		Time: time.Date(2026, 1, 31, 15, 4, 5, 0, time.UTC), Priority: 4, Message: "a\nb",
		Fields: []Field{{"CODE_FILE", "x.go"}, {"_PID", "1"}, {"bad name", "x"}, {"", "x"}},
	}})
	if n != 1 || err != nil {
		t.Fatal(err)
	}
	want := "SYSLOG_IDENTIFIER=runsc\nPRIORITY=4\nSYSLOG_TIMESTAMP=2026-01-31T15:04:05Z\nCODE_FILE=x.go\nMESSAGE\n\x03\x00\x00\x00\x00\x00\x00\x00a\nb\n"
	if got := receive(t, conn); got != want {
		t.Errorf("entry is %q, want %q", got, want)
	}
}

// TestJournalLongEntry wants an entry that no datagram holds in a file.
func TestJournalLongEntry(t *testing.T) {
	path, conn := journald(t)
	s, err := newJournal(path, "runsc")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := send(s, Record{Message: strings.Repeat("x", 500_000)}); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, conn); !bytes.Contains([]byte(got), bytes.Repeat([]byte("x"), 500_000)) {
		t.Errorf("entry of %d bytes does not hold the message", len(got))
	}
}

// TestJournalRestart guards C21: a journald that is restarted costs an error at
// most, and is found again.
func TestJournalRestart(t *testing.T) {
	path, conn := journald(t)
	s, err := newJournal(path, "runsc")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	conn.Close()
	_ = os.Remove(path)
	if err := send(s, Record{Message: "lost"}); err == nil {
		t.Error("Send without a journald = nil, want an error")
	}
	conn = listen(t, path)
	if err := send(s, Record{Message: "found"}); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, conn); !strings.Contains(got, "MESSAGE=found\n") {
		t.Errorf("entry is %q", got)
	}
	// And when its socket is made anew between two records, none is lost.
	conn.Close()
	_ = os.Remove(path)
	conn = listen(t, path)
	if err := send(s, Record{Message: "again"}); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, conn); !strings.Contains(got, "MESSAGE=again\n") {
		t.Errorf("entry is %q", got)
	}
}

func TestNoJournald(t *testing.T) {
	if _, err := newJournal(filepath.Join(t.TempDir(), "absent"), "x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("newJournal without a journald = %v, want fs.ErrNotExist", err)
	}
}

func BenchmarkJournal(b *testing.B) {
	path, conn := journald(b)
	go func() {
		for buf := make([]byte, 1<<16); ; {
			if _, err := conn.Read(buf); err != nil {
				return
			}
		}
	}()
	s, err := newJournal(path, "runsc")
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	batch := slices.Repeat([]Record{{Priority: 6, Message: strings.Repeat("x", 100)}}, batchSize)
	b.ReportAllocs()
	for sent := 0; sent < b.N; {
		n, err := s.Send(batch[:min(len(batch), b.N-sent)])
		if err != nil && !errors.Is(err, ErrBusy) {
			b.Fatal(err)
		}
		sent += n
	}
}
