package archive

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"seedbed/e2e/bundle"
)

// P12, P13, P14, as GNU tar writes them when an unpacked archive is packed again.
func TestGNUTar(t *testing.T) {
	if _, err := exec.LookPath("tar"); err != nil {
		t.Skip("there is no tar in PATH")
	}
	link := func(second, first string) error { return os.Link(first, second) }
	symlink := func(second, first string) error {
		return os.Symlink("../"+filepath.Base(filepath.Dir(first))+"/layer.tar", second)
	}
	for _, test := range []struct {
		why  string
		link func(second, first string) error
		args []string
	}{
		{"hard link", link, nil},
		{"hard link, pax", link, []string{"--format=pax"}},
		{"symlink", symlink, nil},
		{"symlink, v7", symlink, []string{"--format=ustar"}},
		{"symlink, followed", symlink, []string{"--dereference", "--hard-dereference"}},
	} {
		t.Run(test.why, func(t *testing.T) {
			dir, packed := t.TempDir(), filepath.Join(t.TempDir(), "x.tar")
			var second, first string
			tar := twice(t, func(tar bundle.Tar, s, f string) bundle.Tar {
				second, first = filepath.Join(dir, s), filepath.Join(dir, f)
				return tar
			})
			if err := tar.Unpack(dir); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(second); err != nil {
				t.Fatal(err)
			}
			if err := test.link(second, first); err != nil {
				t.Fatal(err)
			}
			args := append(test.args, "--sort=name", "-cf", packed, "-C", dir, ".")
			if out, err := exec.Command("tar", args...).CombinedOutput(); err != nil {
				t.Fatalf("tar: %v: %s", err, out)
			}
			a := mustOpen(t, packed)
			wantNames(t, a, goodName)
			for _, layer := range wantManifest(t, a).Layers {
				wantBlob(t, a, layer.Digest)
			}
		})
	}
}

// A sparse member's data does not lie in one piece: it is refused by name.
func TestSparse(t *testing.T) {
	if _, err := exec.LookPath("tar"); err != nil {
		t.Skip("there is no tar in PATH")
	}
	image := bundle.Image{Name: goodName, Layers: []bundle.Layer{{
		Compression: bundle.None,
		Files:       []bundle.File{{Name: "zeros", Data: make([]byte, 4<<20)}},
	}}}
	layer := image.Build().Layers[0].Digest
	dir := t.TempDir()
	if err := bundle.WriteOCILayout(dir, image); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, bundle.Member(layer))
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 4<<20); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--format=gnu"}, {"--format=pax", "--sparse-version=1.0"}, {"--format=pax", "--sparse-version=0.1"}} {
		packed := filepath.Join(t.TempDir(), "x.tar")
		args = append(args, "--sparse", "-cf", packed, "-C", dir, ".")
		if out, err := exec.Command("tar", args...).CombinedOutput(); err != nil {
			t.Fatalf("tar: %v: %s", err, out)
		}
		wantError(t, mustOpen(t, packed).Missing(layer), CodeNotAnImage, "a sparse member")
	}
}
