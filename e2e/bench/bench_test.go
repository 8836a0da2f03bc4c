package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestQuick measures one row of each kind with the small corpus: that the numbers come out, not what they are.
func TestQuick(t *testing.T) {
	if testing.Short() || os.Geteuid() != 0 {
		t.Skip("needs root, and builds containerd")
	}
	var out bytes.Buffer
	args := []string{"-quick", "-rounds=1", "-run=^(online-single|online-zst|offline-single|unpack|storage-again)$", "-o=json"}
	if err := run(t.Context(), args, &out, t.Output()); err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != 5 {
		t.Errorf("found %d rows: expected 5", len(r.Rows))
	}
	for _, row := range r.Rows {
		if row.Status != statusUnavailable && (row.Ratio <= 0 || row.Seedbed.RSS == 0 || row.Peer.RSS == 0) {
			t.Errorf("row %s: found %+v", row.ID, row)
		}
	}
	var markdown strings.Builder
	if err := r.write(&markdown, "markdown"); err != nil {
		t.Fatal(err)
	}
	t.Log(markdown.String())
}

func TestCorpusIsReproducible(t *testing.T) {
	p := parameters{Source: noise(t), Single: []int64{40_000, 20_000}, Base: []int64{20_000}, Top: 20_000, Images: 3}
	first, second := t.TempDir(), t.TempDir()
	for _, dir := range []string{first, second} {
		if err := generate(t.Context(), dir, p); err != nil {
			t.Fatal(err)
		}
	}
	for _, form := range []string{formSingle, formSingleDocker, formMany, formChanged, formMerged, formMergedDocker} {
		paths, err := corpus{first}.bundles(form)
		if err != nil || len(paths) == 0 {
			t.Fatalf("form %s: found no bundles: %v", form, err)
		}
		for _, path := range paths {
			a, b := read(t, path), read(t, strings.Replace(path, first, second, 1))
			if !bytes.Equal(a, b) {
				t.Errorf("%s differs between two runs", path)
			}
		}
	}
}

// noise is a directory of files of 1 KiB that do not compress.
func noise(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	random := rand.NewChaCha8([32]byte{})
	for n := range 50 {
		data := make([]byte, 1024)
		_, _ = random.Read(data) // never fails
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("file-%02d", n)), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestMedian(t *testing.T) {
	for _, test := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{3}, 3},
		{[]float64{9, 1, 2}, 2},
		{[]float64{4, 1, 2, 100}, 3},
	} {
		if got := median(test.values); got != test.want {
			t.Errorf("median(%v) = %v, expected %v", test.values, got, test.want)
		}
	}
}

func TestVerdict(t *testing.T) {
	runs := func(own, peer time.Duration, stored int64) result {
		r := result{Bar: 0.5, MemoryLimit: 10}
		r.Seedbed.samples = []sample{{Wall: own, RSS: 5, Stored: stored}}
		r.Peer.samples = []sample{{Wall: peer, RSS: 5, Stored: 1000}}
		r.settle()
		return r
	}
	for _, test := range []struct {
		name      string
		own, peer time.Duration
		stored    int64
		want      status
	}{
		{"faster than the bar", time.Second, 3 * time.Second, 1000, statusMet},
		{"slower than the bar", 2 * time.Second, 3 * time.Second, 1000, statusMissed},
		{"fast because it stores less", time.Second, 3 * time.Second, 10, statusUnmeasured},
	} {
		if got := runs(test.own, test.peer, test.stored); got.Status != test.want {
			t.Errorf("%s: found %s (%s), expected %s", test.name, got.Status, got.Reason, test.want)
		}
	}
	missed := &report{Rows: []result{{Status: statusMissed}}}
	if err := missed.verdict(false); err != nil {
		t.Errorf("a missed bar without -check: found %v, expected none", err)
	}
	if err := missed.verdict(true); err == nil {
		t.Error("a missed bar with -check: found no error")
	}
}

func TestParseCall(t *testing.T) {
	for _, test := range []struct {
		line   string
		want   call
		writes bool
	}{
		{`pread64(7</c/a.tar>, ""..., 1048576, 512) = 1048576 <0.000310>`, call{name: "pread64", target: "/c/a.tar", result: "1048576", seconds: 0.00031}, true},
		{`write(4<anon_inode:[eventfd]>, ""..., 8) = 8 <0.000006>`, call{name: "write", target: "anon_inode:[eventfd]", result: "8", seconds: 0.000006}, false},
		{`write(9<socket:[1234]>, ""..., 16393) = 16393 <0.000016>`, call{name: "write", target: "socket:[1234]", result: "16393", seconds: 0.000016}, false},
		{`openat(AT_FDCWD</root>, "/etc/x", O_RDONLY|O_CLOEXEC) = 3</etc/x> <0.000011>`, call{name: "openat", target: "/root", result: "3</etc/x>", seconds: 0.000011}, false},
		{`mkdirat(5</a>, "b", 0755) = -1 EEXIST (File exists) <0.000007>`, call{name: "mkdirat", target: "/a", result: "-1", seconds: 0.000007}, true},
	} {
		got, ok := parseCall(test.line)
		test.want.line = test.line
		if !ok || got != test.want {
			t.Errorf("parseCall(%q) = %+v, expected %+v", test.line, got, test.want)
		}
		if strings.HasPrefix(test.line, "pread") {
			continue // reading is never looked for where writing is
		}
		if got.writes() != test.writes {
			t.Errorf("%s: writes = %v, expected %v", test.line, got.writes(), test.writes)
		}
	}
	if _, ok := parseCall("+++ exited with 0 +++"); ok {
		t.Error("the end of a trace is a call")
	}
}
