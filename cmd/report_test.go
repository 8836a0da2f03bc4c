package cmd

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPrintable: nothing that a terminal obeys is left of a name, and nothing else is changed.
func TestPrintable(t *testing.T) {
	for s, want := range map[string]string{
		"docker.io/library/app:1": "docker.io/library/app:1",
		"größe 日本":                "größe 日本",
		"\x1b[31mred":             `\x1b[31mred`,
		"two\nlines":              `two\x0alines`,
		"\u202etxt.exe":           `\u202etxt.exe`,
		"\x9b31m":                 `\x9b31m`,
		"\u009b31m":               `\u009b31m`,
		"a\xffb":                  `a\xffb`,
		"\ufffd":                  "\ufffd",
	} {
		if got := printable(s); got != want {
			t.Errorf("printable(%q) = %q, want %q", s, got, want)
		}
	}
}

// TestStatusIsOneLine: a second line would be another message to the service manager.
func TestStatusIsOneLine(t *testing.T) {
	if got, want := statusLine("a\nREADY=1"), "STATUS=a READY=1"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestJournalStream: only the stream that JOURNAL_STREAM names is the journal's.
func TestJournalStream(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
		t.Fatal(err)
	}
	for stream, want := range map[string]bool{
		fmt.Sprintf("%d:%d", stat.Dev, stat.Ino):   true,
		fmt.Sprintf("%d:%d", stat.Dev, stat.Ino+1): false,
		"": false,
	} {
		t.Setenv("JOURNAL_STREAM", stream)
		if got := isJournal(f); got != want {
			t.Errorf("JOURNAL_STREAM=%s: %v, want %v", stream, got, want)
		}
	}
}
