package preseed_test

import (
	"os"
	"path/filepath"
	"testing"

	"seedbed/e2e/bundle"
	"seedbed/e2e/containerd"
	"seedbed/preseed"
)

func layoutIn(t *testing.T, dir, name string, i bundle.Image) string {
	t.Helper()
	path := filepath.Join(dir, "k8s.io", name)
	must(t, os.MkdirAll(path, 0o755))
	must(t, bundle.WriteOCILayout(path, i))
	return path
}

// TestLink shares the files of a layout directory with the store, and looks at what is in them.
func TestLink(t *testing.T) {
	root, dir, i := t.TempDir(), t.TempDir(), large()
	s := openOffline(t, root)
	path := layoutIn(t, dir, "a", i)
	r := importDir(t, s, dir, preseed.Options{Link: true})
	wantOutline(t, r, "a imported\n  example.com/large:1 imported\n")
	wantComplete(t, s, "k8s.io", "example.com/large:1")
	wantClean(t, s, "k8s.io")
	layer := i.Build().Layers[0].Digest
	ours, err := os.Stat(blobFile(root, layer))
	must(t, err)
	theirs, err := os.Stat(filepath.Join(path, bundle.Member(layer)))
	must(t, err)
	if !os.SameFile(ours, theirs) || r.Totals.BytesWritten != 0 {
		t.Errorf("%d bytes written, want one file with two names", r.Totals.BytesWritten)
	}
	wantOutline(t, importDir(t, s, dir, preseed.Options{Link: true}), "a unchanged\n  example.com/large:1 unchanged\n")
}

// TestLinkRefused says why something cannot be linked; what can is.
func TestLinkRefused(t *testing.T) {
	dir := t.TempDir()
	add(t, dir, "k8s.io", files{"a.tar": oci(bundle.Good(good))})
	bad := image("example.com/bad:1", "bad")
	path := filepath.Join(layoutIn(t, dir, "b", bad), layerOf(bad))
	data, err := os.ReadFile(path)
	must(t, err)
	data[len(data)/2] ^= 1
	must(t, os.WriteFile(path, data, 0o644))
	layoutIn(t, dir, "c", large())
	s := openOffline(t, t.TempDir())
	r := importDir(t, s, dir, preseed.Options{Link: true})
	wantOutline(t, r, "a.tar failed conflict\n  example.com/good:v1 failed\nb failed digest_mismatch\n  example.com/bad:1 failed\nc imported\n  example.com/large:1 imported\n")
	wantNames(t, s, "k8s.io", "example.com/large:1")
	wantClean(t, s, "k8s.io")

	other := openOffline(t, smallRoot(t, "16m"))
	r = importDir(t, other, dir, preseed.Options{Link: true})
	if got := r.Bundles[2]; got.Error == nil || got.Error.Code != preseed.CodeConflict {
		t.Errorf("layout on another file system: %+v", got)
	}
	if _, err := preseed.Import(t.Context(), preseed.NewStore(containerd.Start(t).Client(t)), []preseed.Source{{Path: dir}}, preseed.Options{Link: true}); err == nil {
		t.Error("linked into a daemon's store")
	}
}
