package preseed_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"seedbed/e2e/bundle"
	"seedbed/preseed"
)

// smallRoot is a root on a file system of size bytes.
func smallRoot(t *testing.T, size string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts a small file system")
	}
	dir := t.TempDir()
	must(t, syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size))
	t.Cleanup(func() { must(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	return dir
}

// sized is an image of about size bytes that do not compress.
func sized(name string, size int) bundle.Image {
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{byte(size)}).Read(data)
	return bundle.Image{Name: name, Layers: []bundle.Layer{{Files: []bundle.File{{Name: "a", Data: data}}}}}
}

const oneDoesNotFit = "a-small.tar imported\n  example.com/small:1 imported\nb-large.tar failed no_space\n  example.com/large:1 failed\nc-good.tar imported\n  example.com/good:v1 imported\n"

// TestNoSpaceIsSeenBefore: the image that does not fit is given up before anything is written, and
// the others are imported.
func TestNoSpaceIsSeenBefore(t *testing.T) {
	s := openOffline(t, smallRoot(t, "8m"))
	dir := place(t, "k8s.io", files{
		"a-small.tar": oci(sized("example.com/small:1", 3<<20)), "b-large.tar": oci(sized("example.com/large:1", 12<<20)),
		"c-good.tar": oci(bundle.Good(good)),
	})
	r := importDir(t, s, dir, preseed.Options{})
	wantOutline(t, r, oneDoesNotFit)
	if written := r.Bundles[1].Bytes.Written; written > 0 {
		t.Errorf("%d bytes written of an image that does not fit", written)
	}
	wantComplete(t, s, "k8s.io", "example.com/small:1")
	wantClean(t, s, "k8s.io")
}

// TestNoSpaceMeanwhile: somebody else fills the file system. The bundle that fails is named, the
// others are still tried, and once there is room the next run finishes the job.
func TestNoSpaceMeanwhile(t *testing.T) {
	root := smallRoot(t, "10m")
	filler := filepath.Join(root, "filler")
	s := openOffline(t, root)
	dir := place(t, "k8s.io", files{
		"a-small.tar": oci(sized("example.com/small:1", 1<<20)), "b-large.tar": oci(sized("example.com/large:1", 6<<20)),
		"c-good.tar": oci(bundle.Good(good)),
	})
	o := preseed.Options{Jobs: 1, Progress: func(e preseed.Event) {
		if e.Kind == preseed.EventDecide {
			must(t, os.WriteFile(filler, make([]byte, 5<<20), 0o600))
		}
	}}
	wantOutline(t, importDir(t, s, dir, o), oneDoesNotFit)
	wantClean(t, s, "k8s.io")
	must(t, os.Remove(filler))
	if r := importDir(t, s, dir, preseed.Options{}); r.Failed() {
		t.Errorf("import with room:\n%s", outline(r))
	}
	wantComplete(t, s, "k8s.io", "example.com/large:1")
}
