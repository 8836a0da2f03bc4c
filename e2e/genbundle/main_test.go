package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	dir := t.TempDir()
	if err := run([]string{"-bad", "all", dir}, io.Discard); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Join(dir, "k8s.io"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := len(entries), 4+len(bad); got != want {
		t.Errorf("%d bundles, want %d", got, want)
	}
}

func TestRunRefuses(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"", "want one directory, got 0"},
		{"-bad nonsense DIR", `no bad bundle "nonsense"`},
	} {
		err := run(strings.Fields(test.args), io.Discard)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("run %q: %v, want %q", test.args, err, test.want)
		}
	}
}
