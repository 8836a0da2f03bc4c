package daemon

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// writeProgram writes a file of mode 0755 and returns its path.
func writeProgram(t *testing.T, dir, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// elfHeader is the header of an ELF program for s390x, which is big-endian.
func elfHeader() []byte {
	h := make([]byte, 64)
	copy(h, "\x7fELF\x02\x02\x01")
	binary.BigEndian.PutUint16(h[16:], 2)  // ET_EXEC
	binary.BigEndian.PutUint16(h[18:], 22) // EM_S390
	binary.BigEndian.PutUint32(h[20:], 1)
	binary.BigEndian.PutUint16(h[52:], 64)
	return h
}

// TestBinaryErrors guards C05: each reason has a message of its own.
func TestBinaryErrors(t *testing.T) {
	if runtime.GOARCH == "s390x" {
		t.Skip("the foreign program of this test is made for this machine")
	}
	dir := t.TempDir()
	plain := writeProgram(t, dir, "plain", []byte("#!/bin/sh\n"))
	if err := os.Chmod(plain, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		path   string
		reason Reason
		code   int
	}{
		{filepath.Join(dir, "absent"), Absent, 127},
		{dir, IsDirectory, 126},
		{plain, NotExecutable, 126},
		{writeProgram(t, dir, "foreign", elfHeader()), WrongArchitecture, 126},
		{writeProgram(t, dir, "text", []byte("hello\n")), NotProgram, 126},
		{writeProgram(t, dir, "empty", nil), NotProgram, 126},
		{"/dev/null", NotProgram, 126},
	} {
		_, err := Find(tt.path, "", "", nil)
		var bad *BinaryError
		if !errors.As(err, &bad) || bad.Reason != tt.reason || bad.ExitCode() != tt.code || bad.Hint() == "" {
			t.Errorf("Find(%q) = %v, want reason %q and exit code %d", tt.path, err, tt.reason, tt.code)
		}
	}
}

func TestFindOrder(t *testing.T) {
	dir := t.TempDir()
	script := []byte("#!/bin/sh\n")
	explicit := writeProgram(t, dir, "explicit", script)
	inBin := writeProgram(t, dir, "bin/containerd", script)
	inPath := writeProgram(t, dir, "path/containerd", script)
	bin, path, none := filepath.Dir(inBin), filepath.Dir(inPath), filepath.Join(dir, "none")
	brokenBin := filepath.Dir(writeProgram(t, dir, "broken/containerd", nil))
	for _, tt := range []struct {
		explicit, bin, path string
		want                string // empty for an error
	}{
		{explicit, bin, path, explicit},
		{"", bin, path, inBin},
		{"", none, none + ":" + path, inPath},
		{"", none, none, "embedded"},
		{"", "", "", "embedded"},
		{"embedded", bin, path, "embedded"},
		{none, bin, path, ""},     // one that is given is not passed over
		{"", brokenBin, path, ""}, // nor one that the image brings
		{"", none, brokenBin + ":" + path, inPath},
	} {
		b, err := Find(tt.explicit, tt.bin, tt.path, nil)
		if tt.want == "" && err == nil || tt.want != "" && (err != nil || b.String() != tt.want) {
			t.Errorf("Find(%q, %q, %q) = %v, %v, want %q", tt.explicit, tt.bin, tt.path, b, err, tt.want)
		}
	}
}
