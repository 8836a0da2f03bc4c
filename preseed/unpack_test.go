package preseed_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/image-spec/identity"

	"seedbed/e2e/bundle"
	"seedbed/e2e/containerd"
	"seedbed/preseed"
	"seedbed/preseed/offline"
)

// onEachSnapshotter runs a test on every kind of store with every snapshotter that the tests have.
func onEachSnapshotter(t *testing.T, test func(t *testing.T, s *preseed.Store, name string)) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: unpacking changes owners and mounts")
	}
	d := containerd.Start(t)
	if _, err := exec.LookPath("mkfs.erofs"); err == nil {
		t.Run("offline/erofs", func(t *testing.T) {
			s, err := offline.Open(t.Context(), t.TempDir(), offline.Options{Snapshotter: "erofs"})
			must(t, err)
			defer func() { must(t, s.Close()) }()
			test(t, s.Preseed(), "erofs")
		})
	}
	for _, name := range []string{"overlayfs", "native"} {
		t.Run("offline/"+name, func(t *testing.T) {
			s, err := offline.Open(t.Context(), t.TempDir(), offline.Options{Snapshotter: name})
			must(t, err)
			defer func() { must(t, s.Close()) }()
			test(t, s.Preseed(), name)
		})
		t.Run("online/"+name, func(t *testing.T) { test(t, preseed.NewStore(d.Client(t)), name) })
	}
}

// layered has layers in every compression: the second replaces, removes and adds, the third has a
// file twice, which is unusual.
func layered(name string) bundle.Image {
	file := func(name, text string) bundle.File { return bundle.File{Name: name, Data: []byte(text)} }
	return bundle.Image{Name: name, Layers: []bundle.Layer{
		{Files: []bundle.File{file("etc/a", "one"), file("etc/b", "one"), file("etc/gone", "one"), file("opt/x/y", "one")}},
		{Files: []bundle.File{file("etc/b", "two"), file("etc/.wh.gone", ""), file("opt/x/.wh..wh..opq", ""), file("opt/x/z", "two")}, Compression: bundle.Zstd},
		{Files: []bundle.File{file("etc/c", "not this"), file("etc/c", "three")}, Compression: bundle.None},
	}}
}

const rootfs = "etc/a=one etc/b=two etc/c=three opt/x/z=two"

func chainID(i bundle.Image) string { return identity.ChainID(i.Build().DiffIDs).String() }

// TestUnpack makes the snapshot that containerd would make, keeps it from collection, finds it
// unchanged, and makes it again when it is removed.
func TestUnpack(t *testing.T) {
	onEachSnapshotter(t, func(t *testing.T, s *preseed.Store, name string) {
		space := "unpack-" + name
		i := layered("example.com/layered:1")
		dir := place(t, space, files{"a.tar": oci(i), "b.tar": docker(layered("app:1"))})
		o := preseed.Options{Unpack: true, Snapshotter: name}
		wantOutline(t, importDir(t, s, dir, preseed.Options{}), "a.tar imported\n  example.com/layered:1 imported\nb.tar imported\n  docker.io/library/app:1 imported\n")
		for _, want := range []preseed.Status{preseed.StatusImported, preseed.StatusUnchanged} {
			r := importDir(t, s, dir, o)
			if got := r.Bundles[0]; got.Status != want || !got.Images[0].Unpacked || r.Bundles[1].Status != want || !r.Bundles[1].Images[0].Unpacked {
				t.Errorf("bundle %+v, image %+v: want %s and unpacked", got, got.Images[0], want)
			}
		}
		wantRootfs(t, s, space, name, chainID(i))
		wantClean(t, s, space)

		removeSnapshots(t, s, space, name)
		verified, err := preseed.Verify(t.Context(), s, []preseed.Source{{Path: dir}}, o)
		must(t, err)
		wantOutline(t, verified, "a.tar incomplete\n  example.com/layered:1 incomplete\nb.tar incomplete\n  docker.io/library/app:1 incomplete\n")
		r := importDir(t, s, dir, o)
		wantOutline(t, r, "a.tar imported\n  example.com/layered:1 imported\nb.tar imported\n  docker.io/library/app:1 imported\n")
		if written := r.Totals.BytesWritten; written > 0 {
			t.Errorf("%d bytes written to unpack what was there", written)
		}
		wantRootfs(t, s, space, name, chainID(i))
	})
}

// TestUnpackFindsWrongDiffID: an image whose layers are not those of its config is not named.
func TestUnpackFindsWrongDiffID(t *testing.T) {
	onEachSnapshotter(t, func(t *testing.T, s *preseed.Store, name string) {
		space := "wrong-" + name
		bad := image("example.com/bad:1", "bad")
		bad.BadDiffs = true
		dir := place(t, space, files{"bad.tar": oci(bad), "good.tar": oci(image("example.com/good:1", "good"))})
		r := importDir(t, s, dir, preseed.Options{Unpack: true, Snapshotter: name})
		wantOutline(t, r, "bad.tar failed digest_mismatch\n  example.com/bad:1 failed\ngood.tar imported\n  example.com/good:1 imported\n")
		wantNames(t, s, space, "example.com/good:1")
		wantClean(t, s, space)
	})
}

// TestUnpackWithUnknownSnapshotter is a wrong command line, whatever the bundles are.
func TestUnpackWithUnknownSnapshotter(t *testing.T) {
	d := containerd.Start(t) // one that has no erofs either
	for _, name := range []string{"none", "erofs"} {
		_, err := preseed.Import(t.Context(), preseed.NewStore(d.Client(t)), []preseed.Source{{Path: t.TempDir()}}, preseed.Options{Unpack: true, Snapshotter: name})
		wantOptionError(t, err)
	}
	_, err := offline.Open(t.Context(), t.TempDir(), offline.Options{Snapshotter: "none"})
	wantOptionError(t, err)
}

// TestOfflineUnpackThenDaemon: containerd takes the snapshots for its own, and collects what a killed
// import left of others.
func TestOfflineUnpackThenDaemon(t *testing.T) {
	d := containerd.New(t)
	i := layered("example.com/layered:1")
	dir := place(t, "k8s.io", files{"a.tar": oci(i), "b.tar": oci(image("example.com/b:1", "b"))})
	o := preseed.Options{Unpack: true}
	s, err := offline.Open(t.Context(), d.Root, offline.Options{Snapshotter: "overlayfs"})
	must(t, err)
	importDir(t, s.Preseed(), dir, o)
	must(t, s.Close())

	d.Start(t)
	online := preseed.NewStore(d.Client(t))
	must(t, online.Images.Delete(in(t, "k8s.io"), "example.com/b:1", images.SynchronousDelete()))
	wantRootfs(t, online, "k8s.io", "overlayfs", chainID(i))
	if all := snapshotsOf(t, online, "k8s.io", "overlayfs"); len(all) != len(i.Layers) {
		t.Errorf("snapshots %q, want those of %d layers", all, len(i.Layers))
	}
	wantOutline(t, importDir(t, online, dir, o), "a.tar unchanged\n  example.com/layered:1 unchanged\nb.tar imported\n  example.com/b:1 imported\n")
}

// wantRootfs mounts a snapshot and compares its files.
func wantRootfs(t *testing.T, s *preseed.Store, namespace, name, chain string) {
	t.Helper()
	sn, err := s.Snapshotter(in(t, namespace), name)
	must(t, err)
	kept := snapshots.WithLabels(map[string]string{"containerd.io/gc.root": "now"}) // a collection may be under way
	mounts, err := sn.View(in(t, namespace), "view", chain, kept)
	must(t, err)
	defer func() { must(t, sn.Remove(in(t, namespace), "view")) }()
	got := ""
	must(t, mount.WithTempMount(t.Context(), mounts, func(root string) error {
		return filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			got += " " + path[len(root)+1:] + "=" + string(data)
			return err
		})
	}))
	if got != " "+rootfs {
		t.Errorf("files%s, want %s", got, rootfs)
	}
}

func snapshotsOf(t *testing.T, s *preseed.Store, namespace, name string) (all []string) {
	t.Helper()
	sn, err := s.Snapshotter(in(t, namespace), name)
	must(t, err)
	err = sn.Walk(in(t, namespace), func(_ context.Context, i snapshots.Info) error {
		all = append(all, i.Name)
		return nil
	})
	if err != nil && !errdefs.IsNotFound(err) {
		t.Fatal(err)
	}
	return all
}

// removeSnapshots removes all of a namespace, children first.
func removeSnapshots(t *testing.T, s *preseed.Store, namespace, name string) {
	t.Helper()
	sn, err := s.Snapshotter(in(t, namespace), name)
	must(t, err)
	for {
		all := snapshotsOf(t, s, namespace, name)
		if len(all) == 0 {
			return
		}
		for _, key := range all {
			if err := sn.Remove(in(t, namespace), key); err != nil && !errdefs.IsFailedPrecondition(err) {
				t.Fatal(err)
			}
		}
	}
}

func wantOptionError(t *testing.T, err error) {
	t.Helper()
	var option *preseed.OptionError
	if !errors.As(err, &option) || option.Option != "snapshotter" {
		t.Errorf("error %v, want one about the option snapshotter", err)
	}
}
