package logpump

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestOpenRefuses guards C18: what is no FIFO is refused, and never followed,
// truncated or changed.
func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	fifo := newFIFO(t)
	for _, link := range []struct{ name, target string }{
		{"link", "/etc/passwd"}, {"link to a FIFO", fifo}, {"dangling", "nowhere"},
	} {
		if err := os.Symlink(link.target, filepath.Join(dir, link.name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct{ path, found string }{
		{file, "regular file"},
		{dir, "directory"},
		{filepath.Join(dir, "link"), "symbolic link"},
		{filepath.Join(dir, "link to a FIFO"), "symbolic link"},
		{filepath.Join(dir, "dangling"), "symbolic link"},
		{"/dev/null", "device"},
	} {
		f, err := Open(tt.path)
		var not *NotFIFO
		if !errors.As(err, &not) || not.Found != tt.found {
			t.Errorf("Open(%q) = %v, want it refused as a %s", tt.path, err, tt.found)
		}
		if f != nil {
			f.Close()
		}
	}
	if got, _ := os.ReadFile(file); string(got) != "precious" {
		t.Errorf("the regular file now holds %q", got)
	}
	if _, err := Open(filepath.Join(dir, "absent")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Open of what is absent = %v, want fs.ErrNotExist", err)
	}
}

// TestOpenDoesNotWait guards C17: neither side of the FIFO waits for the other.
func TestOpenDoesNotWait(t *testing.T) {
	path := newFIFO(t)
	done := make(chan error, 1)
	go func() {
		f, err := Open(path)
		if err == nil {
			defer f.Close()
			var w *os.File
			if w, err = os.OpenFile(path, os.O_WRONLY, 0); err == nil {
				err = w.Close()
			}
		}
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Error("Open of a FIFO without a writer waits")
	}
}

// TestAdopt takes a blocking descriptor, as systemd passes one.
func TestAdopt(t *testing.T) {
	fd, err := unix.Open(newFIFO(t), unix.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	passed := os.NewFile(uintptr(fd), "LISTEN_FD_3")
	defer passed.Close()
	f, err := Adopt(passed)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatalf("SetReadDeadline = %v, the file is not in the poller", err)
	}
	if _, err := f.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Read = %v, want the deadline", err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	var not *NotFIFO
	if _, err := Adopt(null); !errors.As(err, &not) {
		t.Errorf("Adopt(/dev/null) = %v, want *NotFIFO", err)
	}
}
