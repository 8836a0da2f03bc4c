package archive

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"seedbed/e2e/bundle"
)

const goodName = "example.com/good:v1"

func write(t *testing.T, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.tar")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func mustOpen(t *testing.T, path string) *Archive {
	t.Helper()
	a, err := Open(context.Background(), path)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

// openBytes opens data as a file.
func openBytes(t *testing.T, data []byte) *Archive {
	t.Helper()
	return mustOpen(t, write(t, data))
}

// refused opens data as a file and as a stream, wants both to say the same, and
// returns what they say.
func refused(t *testing.T, data []byte) *Error {
	t.Helper()
	_, err := Open(context.Background(), write(t, data))
	e := asError(t, err)
	_, err = OpenStream(context.Background(), bytes.NewReader(data), t.TempDir())
	if stream := asError(t, err); stream.Error() != e.Error() {
		t.Errorf("stream says %q, file says %q", stream, e)
	}
	return e
}

func asError(t *testing.T, err error) *Error {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("error = %v (%T), want an *Error", err, err)
	}
	return e
}

// wantError checks an error's code and that its text has words.
func wantError(t *testing.T, err error, code Code, words ...string) {
	t.Helper()
	e := asError(t, err)
	if e.Code != code {
		t.Errorf("code = %s, want %s (%v)", e.Code, code, e)
	}
	for _, word := range words {
		if !strings.Contains(e.Error(), word) {
			t.Errorf("error = %q, want it to say %q", e, word)
		}
	}
}

// wantWhole checks that every blob that build names is there with the right bytes.
func wantWhole(t *testing.T, a *Archive, build bundle.Built) {
	t.Helper()
	wantBlob(t, a, build.Target.Digest)
	wantBlob(t, a, build.Config.Digest)
	for _, layer := range build.Layers {
		wantBlob(t, a, layer.Digest)
	}
}

func wantBlob(t *testing.T, a *Archive, d digest.Digest) []byte {
	t.Helper()
	b, ok := a.Blob(d)
	if !ok {
		t.Fatalf("no blob %s: %v", d, a.Missing(d))
	}
	data, err := io.ReadAll(b.Reader())
	if err != nil {
		t.Fatalf("read %s: %v", d, err)
	}
	if got := digest.FromBytes(data); got != d || int64(len(data)) != b.Size {
		t.Errorf("blob %s (%s): %d bytes with digest %s, want %d bytes", d, b.Member, len(data), got, b.Size)
	}
	return data
}

func wantNames(t *testing.T, a *Archive, names ...string) {
	t.Helper()
	var got []string
	for _, image := range a.Images {
		if image.Err != nil {
			t.Errorf("image %q: %v", image.Name, image.Err)
		}
		got = append(got, image.Name)
	}
	if strings.Join(got, " ") != strings.Join(names, " ") || len(got) != len(names) {
		t.Errorf("names = %q, want %q", got, names)
	}
}
