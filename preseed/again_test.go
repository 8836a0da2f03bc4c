package preseed_test

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"

	"seedbed/e2e/bundle"
	"seedbed/e2e/containerd"
	"seedbed/preseed"
	"seedbed/preseed/offline"
)

// TestImportAgain is P24: a second run writes nothing, and repairs what the store has lost although
// the bundle did not change.
func TestImportAgain(t *testing.T) {
	i := bundle.Good(good)
	built := i.Build()
	const imported = "good.tar imported\n  example.com/good:v1 imported\n"
	const unchanged = "good.tar unchanged\n  example.com/good:v1 unchanged\n"
	lost := []struct {
		name string
		lose func(t *testing.T, s *preseed.Store, namespace string)
	}{
		{"record", func(t *testing.T, s *preseed.Store, namespace string) {
			must(t, s.Images.Delete(in(t, namespace), good, images.SynchronousDelete()))
		}},
		{"layer", func(t *testing.T, s *preseed.Store, namespace string) {
			must(t, s.Content.Delete(in(t, namespace), built.Layers[0].Digest))
		}},
		{"manifest", func(t *testing.T, s *preseed.Store, namespace string) {
			must(t, s.Content.Delete(in(t, namespace), built.Target.Digest))
		}},
		{"references", func(t *testing.T, s *preseed.Store, namespace string) {
			_, err := s.Content.Update(in(t, namespace), content.Info{Digest: built.Target.Digest}, "labels")
			must(t, err)
		}},
		{"pin", func(t *testing.T, s *preseed.Store, namespace string) { // P25
			setLabels(t, s, namespace, map[string]string{preseed.PinLabel: ""})
		}},
	}
	onEachStore(t, func(t *testing.T, s *preseed.Store) {
		for _, c := range lost {
			t.Run(c.name, func(t *testing.T) {
				dir := place(t, c.name, files{"good.tar": oci(i)})
				wantOutline(t, importDir(t, s, dir, preseed.Options{}), imported)
				again := importDir(t, s, dir, preseed.Options{})
				wantOutline(t, again, unchanged)
				if again.Totals.BytesWritten != 0 || !again.Bundles[0].Images[0].Pinned {
					t.Errorf("second run wrote %d bytes, image %+v", again.Totals.BytesWritten, again.Bundles[0].Images[0])
				}
				c.lose(t, s, c.name)
				verified, err := preseed.Verify(t.Context(), s, []preseed.Source{{Path: dir}}, preseed.Options{})
				must(t, err)
				wantOutline(t, verified, "good.tar incomplete\n  example.com/good:v1 incomplete\n")
				wantOutline(t, importDir(t, s, dir, preseed.Options{}), imported)
				wantOutline(t, importDir(t, s, dir, preseed.Options{}), unchanged)
				wantComplete(t, s, c.name, good)
				wantClean(t, s, c.name)
			})
		}
	})
}

// TestImportKeepsLabels is P25: the pin and the source are merged into the labels that CRI and
// others have set, and the pin goes only when that is asked for.
func TestImportKeepsLabels(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *preseed.Store) {
		dir := place(t, "k8s.io", files{"good.tar": oci(bundle.Good(good))})
		path := filepath.Join(dir, "k8s.io", "good.tar")
		importDir(t, s, dir, preseed.Options{NoPin: true})
		wantLabels(t, s, map[string]string{preseed.SourceLabel: path})
		setLabels(t, s, "k8s.io", map[string]string{"io.cri-containerd.image": "managed"})

		importDir(t, s, dir, preseed.Options{})
		all := map[string]string{preseed.SourceLabel: path, preseed.PinLabel: "pinned", "io.cri-containerd.image": "managed"}
		wantLabels(t, s, all)
		importDir(t, s, dir, preseed.Options{UnpinMissing: true})
		wantLabels(t, s, all)

		must(t, os.Remove(path))
		importDir(t, s, dir, preseed.Options{})
		wantLabels(t, s, all)
		importDir(t, s, dir, preseed.Options{UnpinMissing: true})
		delete(all, preseed.PinLabel)
		wantLabels(t, s, all)
	})
}

// TestStreamBesideDirectory: an image that comes from a file and from a stream belongs to the file,
// whichever comes first, for the file can be looked for later. They do not take it from each other.
func TestStreamBesideDirectory(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *preseed.Store) {
		dir := place(t, "k8s.io", files{"!first.tar": oci(bundle.Good(good))})
		path := filepath.Join(dir, "k8s.io", "!first.tar")
		file := preseed.Source{Path: dir}
		want := map[string]string{preseed.PinLabel: preseed.PinValue, preseed.SourceLabel: path}
		stream := func() preseed.Source {
			return preseed.Source{Path: "-", Namespace: "k8s.io", Reader: bytes.NewReader(oci(bundle.Good(good)))}
		}
		for _, step := range []struct {
			why     string
			sources []preseed.Source
			status  preseed.Status
		}{
			{"both", []preseed.Source{stream(), file}, preseed.StatusImported},
			{"both again", []preseed.Source{file, stream()}, preseed.StatusUnchanged},
			{"the stream alone", []preseed.Source{stream()}, preseed.StatusUnchanged},
			{"the file alone", []preseed.Source{file}, preseed.StatusUnchanged},
		} {
			r, err := preseed.Import(t.Context(), s, step.sources, preseed.Options{UnpinMissing: true})
			must(t, err)
			for _, b := range r.Bundles {
				if b.Status != step.status {
					t.Errorf("%s: %s %s, want %s", step.why, b.Path, b.Status, step.status)
				}
			}
			wantLabels(t, s, want)
		}
		must(t, os.Remove(path))
		_, err := preseed.Import(t.Context(), s, []preseed.Source{stream()}, preseed.Options{})
		must(t, err)
		want[preseed.SourceLabel] = "-"
		wantLabels(t, s, want)
	})
}

// TestImportIntoNamespaces is P26: one archive for two namespaces is in both and in no other, and
// its blobs are read once.
func TestImportIntoNamespaces(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *preseed.Store) {
		data := oci(large())
		dir := place(t, "one", files{"a.tar": data})
		add(t, dir, "two", files{"a.tar": data})
		r := importDir(t, s, dir, preseed.Options{})
		wantOutline(t, r, "a.tar imported\n  example.com/large:1 imported\na.tar imported\n  example.com/large:1 imported\n")
		if written := r.Totals.BytesWritten; written > int64(len(data)) {
			t.Errorf("%d bytes written of an archive of %d", written, len(data))
		}
		wantComplete(t, s, "one", "example.com/large:1")
		wantComplete(t, s, "two", "example.com/large:1")
		wantNames(t, s, "default")
	})
}

// TestImportKeepsWhatGarbageCollectionWould is about labels and leases: after a collection the
// image is whole.
func TestImportKeepsWhatGarbageCollectionWould(t *testing.T) {
	d := containerd.Start(t)
	s := preseed.NewStore(d.Client(t))
	nested := withVariants(good, image("", "amd64"), ofPlatform(image("", "other"), other()))
	importDir(t, s, place(t, "k8s.io", files{"a.tar": oci(nested), "b.tar": docker(bundle.Good("app:1")), "c.tar": oci(bundle.Good("example.com/c:1"))}), preseed.Options{})
	must(t, s.Images.Delete(in(t, "k8s.io"), "example.com/c:1", images.SynchronousDelete()))
	wantComplete(t, s, "k8s.io", good)
	wantComplete(t, s, "k8s.io", "docker.io/library/app:1")
	foreign := nested.Variants[1].Build().Target.Digest
	if _, err := s.Content.Info(in(t, "k8s.io"), foreign); !errdefs.IsNotFound(err) {
		t.Errorf("the other platform's manifest: %v, want not found", err)
	}
}

// TestOfflineThenDaemon imports into an empty root and starts containerd on it; a collection there
// takes nothing away, and a second import finds nothing to do.
func TestOfflineThenDaemon(t *testing.T) {
	d := containerd.New(t)
	dir := place(t, "k8s.io", files{"good.tar": oci(bundle.Good(good)), "other.tar": docker(bundle.Good("app:1"))})
	s, err := offline.Open(t.Context(), d.Root, offline.Options{})
	must(t, err)
	importDir(t, s.Preseed(), dir, preseed.Options{})
	must(t, s.Close())

	d.Start(t)
	online := preseed.NewStore(d.Client(t))
	must(t, online.Images.Delete(in(t, "k8s.io"), "docker.io/library/app:1", images.SynchronousDelete()))
	wantComplete(t, online, "k8s.io", good)
	wantOutline(t, importDir(t, online, dir, preseed.Options{}), `
		good.tar unchanged
		  example.com/good:v1 unchanged
		other.tar imported
		  docker.io/library/app:1 imported
	`)
	if _, err := offline.Open(t.Context(), d.Root, offline.Options{LockTimeout: 50 * time.Millisecond}); err == nil {
		t.Error("the store of a running containerd could be opened")
	}
}

// TestImportAfterKilledImport finds what a killed import leaves: a lease of a process that is gone,
// a blob that only this lease keeps, and an ingest with other bytes in it.
func TestImportAfterKilledImport(t *testing.T) {
	i := large()
	built := i.Build()
	archive := bundle.OCI(i)
	onEachStore(t, func(t *testing.T, s *preseed.Store) {
		ctx := in(t, "k8s.io")
		lease, err := s.Leases.Create(ctx, leases.WithID("seedbed-killed"), leases.WithLabel("seedbed.owner", "another boot/pid:[1]/1/1"))
		must(t, err)
		ctx = leases.WithLease(ctx, lease.ID)
		config := archive.Get(bundle.Member(built.Config.Digest))
		must(t, content.WriteBlob(ctx, s.Content, "config", newReader(config), built.Config))
		w, err := content.OpenWriter(ctx, s.Content, content.WithRef("seedbed-"+built.Layers[0].Digest.String()), content.WithDescriptor(built.Layers[0]))
		must(t, err)
		_, err = w.Write(make([]byte, 1<<20))
		must(t, err)
		must(t, w.Close())
		waitForIngest(t, s)

		dir := place(t, "k8s.io", files{"a.tar": archive.Bytes()})
		wantOutline(t, importDir(t, s, dir, preseed.Options{}), "a.tar imported\n  example.com/large:1 imported\n")
		wantClean(t, s, "k8s.io")
		_, err = s.Leases.Create(in(t, "k8s.io"), leases.WithID("seedbed-killed"), leases.WithLabel("seedbed.owner", "another boot/pid:[1]/1/1"))
		must(t, err)
		wantOutline(t, importDir(t, s, dir, preseed.Options{}), "a.tar unchanged\n  example.com/large:1 unchanged\n")
		wantClean(t, s, "k8s.io")
		wantComplete(t, s, "k8s.io", "example.com/large:1")
	})
}

// TestImportWhenContainerdDies: the bundles say so, nothing hangs, and the next run finishes the job.
func TestImportWhenContainerdDies(t *testing.T) {
	d := containerd.Start(t)
	dir := place(t, "k8s.io", files{"a.tar": oci(large()), "b.tar": oci(bundle.Good(good))})
	o := preseed.Options{Jobs: 1, Progress: func(e preseed.Event) {
		if e.Kind == preseed.EventCopy {
			d.Kill()
		}
	}}
	r := importDir(t, preseed.NewStore(d.Client(t)), dir, o)
	wantOutline(t, r, "a.tar failed unavailable\n  example.com/large:1 failed\nb.tar failed unavailable\n  example.com/good:v1 failed\n")
	d.Start(t)
	s := preseed.NewStore(d.Client(t))
	wantOutline(t, importDir(t, s, dir, preseed.Options{}), "a.tar imported\n  example.com/large:1 imported\nb.tar imported\n  example.com/good:v1 imported\n")
	wantComplete(t, s, "k8s.io", "example.com/large:1")
}

// TestList shows images that came from bundles, and what the store has lost of them.
func TestList(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *preseed.Store) {
		i := bundle.Good(good)
		dir := place(t, "k8s.io", files{"a.tar": oci(i), "b.tar": oci(image("example.com/b:1", "b"))})
		importDir(t, s, dir, preseed.Options{})
		must(t, s.Content.Delete(in(t, "k8s.io"), i.Build().Layers[0].Digest))
		must(t, os.Remove(filepath.Join(dir, "k8s.io", "b.tar")))
		list, err := preseed.List(t.Context(), s, preseed.Options{})
		must(t, err)
		if len(list) != 2 || list[0].Name != "example.com/b:1" || list[0].State != preseed.StatusOK || !list[0].Gone ||
			list[1].State != preseed.StatusIncomplete || list[1].Gone || !list[1].Pinned {
			t.Errorf("list: %+v", list)
		}
	})
}

func wantLabels(t *testing.T, s *preseed.Store, want map[string]string) {
	t.Helper()
	img, err := s.Images.Get(in(t, "k8s.io"), good)
	must(t, err)
	if !maps.Equal(img.Labels, want) {
		t.Errorf("labels %v, want %v", img.Labels, want)
	}
}

func setLabels(t *testing.T, s *preseed.Store, namespace string, labels map[string]string) {
	t.Helper()
	img, err := s.Images.Get(in(t, namespace), good)
	must(t, err)
	var fields []string
	for _, label := range slices.Sorted(maps.Keys(labels)) {
		fields = append(fields, "labels."+label)
	}
	img.Labels = labels
	_, err = s.Images.Update(in(t, namespace), img, fields...)
	must(t, err)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
