package archive

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/opencontainers/go-digest"

	"seedbed/e2e/bundle"
)

// However many archives are open, only as many files are as there may be, and
// everything can be read all the same, by several goroutines at once.
func TestFiles(t *testing.T) {
	const limit, archives = 3, 20
	image := bundle.Good(goodName)
	layer := image.Build().Layers[0].Digest
	files := NewFiles(limit)
	var all []*Archive
	for range archives {
		all = append(all, openWith(t, files, write(t, bundle.OCI(image).Bytes())))
	}
	wantOpen(t, limit)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for _, a := range all {
				b, ok := a.Blob(layer)
				if !ok {
					t.Error("no layer")
					continue
				}
				if got, err := digest.FromReader(b.Reader()); got != layer || err != nil {
					t.Errorf("read %s: got %s, %v", layer, got, err)
				}
			}
		})
	}
	group.Wait()
	wantOpen(t, limit)
	for _, a := range all {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
	wantOpen(t, 0)
}

// A file that is opened again has to be the one that was opened first.
func TestFilesOfChangedArchive(t *testing.T) {
	good := bundle.OCI(bundle.Good(goodName)).Bytes()
	for name, change := range changes(good) {
		path := write(t, good)
		a := openWith(t, NewFiles(0), path)
		if err := change(path); err != nil {
			t.Fatal(err)
		}
		b, ok := a.Blob(a.Images[0].Target.Digest)
		if !ok {
			t.Fatal("no manifest")
		}
		_, err := b.ReadAt(make([]byte, 1), 0)
		wantError(t, err, CodeChangedWhileReading, name)
	}
}

func openWith(t *testing.T, files *Files, path string) *Archive {
	t.Helper()
	a, err := Options{Files: files}.Open(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

// wantOpen counts the archives that this process has open.
func wantOpen(t *testing.T, want int) {
	t.Helper()
	links, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	open := 0
	for _, link := range links {
		if target, _ := os.Readlink(link); strings.HasSuffix(target, "/x.tar") {
			open++
		}
	}
	if open != want {
		t.Errorf("%d archives are open, want %d", open, want)
	}
}
