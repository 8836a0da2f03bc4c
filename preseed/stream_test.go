package preseed_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"seedbed/e2e/bundle"
	"seedbed/e2e/containerd"
	"seedbed/preseed"
)

// compressedLayers gives a docker archive's layers the bytes of compressed ones under names that
// say nothing, as kaniko and others write them.
func compressedLayers(a bundle.Tar) bundle.Tar {
	for _, name := range a.Names() {
		if strings.HasSuffix(name, "/layer.tar") {
			a = a.Replace(name, bundle.Compress(a.Get(name), bundle.Gzip))
		}
	}
	return a
}

// TestImportOnePass brings every form that can be read only once into the store: compressed files,
// and standard input.
func TestImportOnePass(t *testing.T) {
	i := large()
	foreign := ofPlatform(i, other())
	foreign.Layers = []bundle.Layer{{Files: []bundle.File{{Name: "b", Data: slices.Repeat([]byte("foreign"), 100_000)}}, Compression: bundle.None}}
	junk := make([]byte, 1<<20)
	for _, form := range []struct {
		name, image string
		tar         bundle.Tar
	}{
		{"oci", i.Name, bundle.OCI(i)},
		{"oci-with-junk", i.Name, append(bundle.OCI(i), bundle.Tar{}.Add("junk", junk)...)},
		{"oci-index-first", i.Name, reversed(bundle.OCI(i))},
		{"oci-other-platform-too", i.Name, bundle.OCI(withVariants(i.Name, foreign, i))},
		{"hybrid", i.Name, bundle.Hybrid(i)},
		{"docker", i.Name, bundle.Docker(i)},
		{"docker-manifest-first", i.Name, reversed(bundle.Docker(i))},
		{"docker-compressed-layers", i.Name, compressedLayers(bundle.Docker(i))},
	} {
		onEachStore(t, func(t *testing.T, s *preseed.Store) {
			for how, source := range map[string]preseed.Source{
				"zstd":  {Path: filepath.Join(place(t, "k8s.io", files{"a.tar.zst": bundle.Compress(form.tar.Bytes(), bundle.Zstd)}), "k8s.io", "a.tar.zst")},
				"gzip":  {Path: filepath.Join(place(t, "k8s.io", files{"a.tar.gz": bundle.Compress(form.tar.Bytes(), bundle.Gzip)}), "k8s.io", "a.tar.gz")},
				"stdin": {Path: "-", Reader: bytes.NewReader(form.tar.Bytes())},
			} {
				t.Run(form.name+"/"+how, func(t *testing.T) {
					source.Namespace = strings.ReplaceAll(form.name+"-"+how, "/", "-")
					r, err := preseed.Import(t.Context(), s, []preseed.Source{source}, preseed.Options{SpoolDir: emptyDir(t)})
					must(t, err)
					if b := r.Bundles[0]; b.Status != preseed.StatusImported || b.Images[0].Status != preseed.StatusImported || b.Bytes.Reused < 0 {
						t.Fatalf("report: %+v %+v", b, b.Error)
					}
					wantNames(t, s, source.Namespace, form.image)
					wantComplete(t, s, source.Namespace, form.image)
					wantClean(t, s, source.Namespace)
				})
			}
		})
	}
}

// emptyDir is for what is spooled, which has to be gone when the test ends.
func emptyDir(t *testing.T) string {
	dir := t.TempDir()
	t.Cleanup(func() {
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	})
	return dir
}

func reversed(a bundle.Tar) bundle.Tar {
	a = slices.Clone(a)
	slices.Reverse(a)
	return a
}

// TestImportBadStream says of a compressed archive what it says of the same archive as it is, and
// names nothing.
func TestImportBadStream(t *testing.T) {
	i := large()
	whole := bundle.OCI(i)
	docker := bundle.Docker(i)
	cut := bundle.Compress(whole.Bytes(), bundle.Gzip)
	for _, c := range []struct {
		why  string
		data []byte
		code string
	}{
		{"P08 the stream is cut off", cut[:len(cut)/2], "truncated"},
		{"P08 the tar in it is cut off", bundle.Compress(whole.Bytes()[:2<<20], bundle.Zstd), "truncated"},
		{"a layer is damaged", bundle.Compress(whole.FlipByte(layerOf(i)).Bytes(), bundle.Zstd), "digest_mismatch"},
		{"a docker layer is damaged", bundle.Compress(docker.FlipByte(dockerLayer(docker)).Bytes(), bundle.Zstd), "digest_mismatch"},
		{"a layer is missing", bundle.Compress(whole.Drop(layerOf(i)).Bytes(), bundle.Zstd), "missing_blob"},
		{"the manifest is no JSON", bundle.Compress(whole.Replace(bundle.Member(i.Build().Target.Digest), make([]byte, 1<<20)).Bytes(), bundle.Zstd), "digest_mismatch"},
		{"the index is no JSON", bundle.Compress(whole.Replace("index.json", make([]byte, 1<<20)).Bytes(), bundle.Zstd), "not_an_image"},
		{"a root file system", bundle.Compress(bundle.Tar{}.Add("etc/passwd", nil).Add("usr/bin/a", make([]byte, 1<<20)).Bytes(), bundle.Zstd), "not_an_image"},
	} {
		t.Run(c.why, func(t *testing.T) {
			onEachStore(t, func(t *testing.T, s *preseed.Store) {
				dir := place(t, "k8s.io", files{"a.tar.zst": c.data, "b.tar": oci(bundle.Good(good))})
				r := importDir(t, s, dir, preseed.Options{})
				if e := r.Bundles[0].Error; e == nil || string(e.Code) != c.code {
					t.Errorf("%s: %+v, want %s", r.Bundles[0].Reason, e, c.code)
				}
				wantNames(t, s, "k8s.io", good)
				wantClean(t, s, "k8s.io")
				checked, err := preseed.Check(t.Context(), []preseed.Source{{Path: dir}}, preseed.Options{})
				must(t, err)
				if e := checked.Bundles[0].Error; e == nil || string(e.Code) != c.code {
					t.Errorf("check: %+v, want %s", e, c.code)
				}
			})
		})
	}
}

func dockerLayer(a bundle.Tar) string {
	return a.Names()[slices.IndexFunc(a.Names(), func(name string) bool { return strings.HasSuffix(name, "/layer.tar") })]
}

// TestImportStreamDryRun writes nothing, and says what would be.
func TestImportStreamDryRun(t *testing.T) {
	i := large()
	onEachStore(t, func(t *testing.T, s *preseed.Store) {
		dir := place(t, "k8s.io", files{"a.tar.zst": bundle.Compress(oci(i), bundle.Zstd)})
		wantOutline(t, importDir(t, s, dir, preseed.Options{DryRun: true}), "a.tar.zst imported\n  example.com/large:1 imported\n")
		wantNames(t, s, "k8s.io")
		if _, err := s.Content.Info(in(t, "k8s.io"), i.Build().Layers[0].Digest); !errdefs.IsNotFound(err) {
			t.Errorf("the layer: %v, want not found", err)
		}
	})
}

// TestStreamLeavesNothing: what no image of a stream needs is collected.
func TestStreamLeavesNothing(t *testing.T) {
	i := large()
	foreign := ofPlatform(i, other())
	foreign.Layers = []bundle.Layer{{Files: []bundle.File{{Name: "b", Data: slices.Repeat([]byte("foreign"), 100_000)}}, Compression: bundle.None}}
	s := preseed.NewStore(containerd.Start(t).Client(t))
	importDir(t, s, place(t, "k8s.io", files{"a.tar.zst": bundle.Compress(oci(withVariants(i.Name, foreign, i)), bundle.Zstd), "b.tar": oci(bundle.Good(good))}), preseed.Options{})
	must(t, s.Images.Delete(in(t, "k8s.io"), good, images.SynchronousDelete()))
	wantComplete(t, s, "k8s.io", i.Name)
	if _, err := s.Content.Info(in(t, "k8s.io"), foreign.Build().Layers[0].Digest); !errdefs.IsNotFound(err) {
		t.Errorf("the other platform's layer: %v, want not found", err)
	}
	if d := ledgerOf(t, s, i.Name); d == "" {
		t.Error("no ledger after a collection")
	}
}

// ledgerOf returns the digest of the ledger of an image's bundle, if the store has it.
func ledgerOf(t *testing.T, s *preseed.Store, name string) digest.Digest {
	t.Helper()
	img, err := s.Images.Get(in(t, "k8s.io"), name)
	must(t, err)
	d := digest.Digest(img.Labels[preseed.LedgerLabel])
	if d == "" {
		return ""
	}
	if _, err := s.Content.Info(in(t, "k8s.io"), d); err != nil {
		t.Errorf("ledger: %v", err)
	}
	return d
}

// TestLedger is P24 for archives that cannot be looked into without reading them: the second import
// reads next to nothing, and still looks at the store.
func TestLedger(t *testing.T) {
	i := large()
	layer := i.Build().Layers[0].Digest
	const imported, unchanged = "imported", "unchanged"
	forms := map[string]struct {
		data  []byte
		image string
		layer digest.Digest
	}{
		"oci.tar.zst":   {bundle.Compress(oci(i), bundle.Zstd), i.Name, layer},
		"oci.tar.gz":    {bundle.Compress(oci(i), bundle.Gzip), i.Name, layer},
		"docker.tar":    {compressedLayers(bundle.Docker(i)).Bytes(), i.Name, layer},
		"docker.tar.gz": {bundle.Compress(docker(i), bundle.Gzip), i.Name, i.Build().DiffIDs[0]},
	}
	for name, form := range forms {
		onEachStore(t, func(t *testing.T, s *preseed.Store) {
			t.Run(name, func(t *testing.T) {
				dir := place(t, "k8s.io", files{name: form.data})
				path := filepath.Join(dir, "k8s.io", name)
				run := func(want string, readsAll bool) {
					t.Helper()
					r := importDir(t, s, dir, preseed.Options{})
					wantOutline(t, r, name+" "+want+"\n  "+form.image+" "+want+"\n")
					if read := r.Totals.BytesRead; readsAll != (read > int64(len(form.data))/2) {
						t.Errorf("%d bytes read of %d", read, len(form.data))
					}
					wantComplete(t, s, "k8s.io", form.image)
					wantClean(t, s, "k8s.io")
					if ledgerOf(t, s, form.image) == "" {
						t.Error("no ledger")
					}
				}
				run(imported, true)
				run(unchanged, false)

				must(t, s.Images.Delete(in(t, "k8s.io"), form.image, images.SynchronousDelete()))
				run(imported, true) // the ledger went with the image
				must(t, s.Content.Delete(in(t, "k8s.io"), form.layer))
				run(imported, false) // only forgotten: its file is there
				run(unchanged, false)

				must(t, s.Content.Delete(in(t, "k8s.io"), ledgerOf(t, s, form.image)))
				run(unchanged, true)
				run(unchanged, false)
				touch(t, path)
				run(unchanged, true)
				run(unchanged, false)
			})
		})
	}
}

// touch makes a file another without changing its content.
func touch(t *testing.T, path string) {
	t.Helper()
	must(t, os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour)))
}

// TestLedgerOfChangedBundle: a bundle that changes in place, with its size and time as they were, is
// noticed; one that takes another form needs no ledger any more.
func TestLedgerOfChangedBundle(t *testing.T) {
	old, young := image("example.com/a:1", "old text"), image("example.com/a:1", "new text")
	pack := func(i bundle.Image) []byte {
		return bundle.Compress(append(bundle.OCI(i), bundle.Tar{}.Add("pad", nil)...).Bytes(), bundle.Gzip)
	}
	before, after := pack(old), pack(young)
	for len(after) < len(before) { // gzip ignores NULs after its end
		after = append(after, 0)
	}
	for len(before) < len(after) {
		before = append(before, 0)
	}
	onEachStore(t, func(t *testing.T, s *preseed.Store) {
		dir := place(t, "k8s.io", files{"a.tar.gz": before})
		path := filepath.Join(dir, "k8s.io", "a.tar.gz")
		importDir(t, s, dir, preseed.Options{})
		info, err := os.Stat(path)
		must(t, err)
		must(t, os.WriteFile(path, after, 0o644))
		must(t, os.Chtimes(path, info.ModTime(), info.ModTime()))
		wantOutline(t, importDir(t, s, dir, preseed.Options{}), "a.tar.gz imported\n  example.com/a:1 imported\n")
		img, err := s.Images.Get(in(t, "k8s.io"), "example.com/a:1")
		must(t, err)
		if img.Target.Digest != young.Build().Target.Digest {
			t.Error("the store has the old image")
		}
		must(t, os.Remove(path))
		add(t, dir, "k8s.io", files{"a.tar": oci(young)})
		wantOutline(t, importDir(t, s, dir, preseed.Options{}), "a.tar imported\n  example.com/a:1 imported\n")
		if d := ledgerOf(t, s, "example.com/a:1"); d != "" {
			t.Errorf("the ledger is still named: %s", d)
		}
	})
}

// TestLedgerIsChecked: what lies in the store under a ledger's name is not believed blindly.
func TestLedgerIsChecked(t *testing.T) {
	i := large()
	onEachStore(t, func(t *testing.T, s *preseed.Store) {
		dir := place(t, "k8s.io", files{"a.tar.zst": bundle.Compress(oci(i), bundle.Zstd)})
		importDir(t, s, dir, preseed.Options{})
		for _, wrong := range []any{"no ledger", map[string]any{"Version": 99}, ocispec.Index{}} {
			data, err := json.Marshal(wrong)
			must(t, err)
			d := putBlob(t, s, data)
			setLedger(t, s, i.Name, d)
			wantOutline(t, importDir(t, s, dir, preseed.Options{}), "a.tar.zst unchanged\n  example.com/large:1 unchanged\n")
			if ledgerOf(t, s, i.Name) == d {
				t.Errorf("%s is still taken for the ledger", data)
			}
		}
	})
}

func putBlob(t *testing.T, s *preseed.Store, data []byte) digest.Digest {
	t.Helper()
	desc := ocispec.Descriptor{Digest: digest.FromBytes(data), Size: int64(len(data))}
	must(t, content.WriteBlob(in(t, "k8s.io"), s.Content, "test", bytes.NewReader(data), desc))
	return desc.Digest
}

func setLedger(t *testing.T, s *preseed.Store, name string, d digest.Digest) {
	t.Helper()
	_, err := s.Images.Update(in(t, "k8s.io"), images.Image{Name: name, Labels: map[string]string{preseed.LedgerLabel: d.String()}}, "labels."+preseed.LedgerLabel)
	must(t, err)
}

// TestLedgerAndLostBlob: a blob whose file is gone comes from the archive, which is read again.
func TestLedgerAndLostBlob(t *testing.T) {
	i := large()
	layer := i.Build().Layers[0].Digest
	onEachRoot(t, func(t *testing.T, s reopened, root string) {
		dir := place(t, "k8s.io", files{"a.tar.zst": bundle.Compress(oci(i), bundle.Zstd)})
		sources := []preseed.Source{{Path: dir}}
		importDir(t, s(), dir, preseed.Options{})
		for _, repair := range []func() (*preseed.Report, error){
			func() (*preseed.Report, error) { return preseed.Import(t.Context(), s(), sources, preseed.Options{}) },
			func() (*preseed.Report, error) {
				return preseed.Verify(t.Context(), s(), sources, preseed.Options{Repair: true})
			},
		} {
			s()
			must(t, os.Remove(blobFile(root, layer)))
			r, err := repair()
			must(t, err)
			wantOutline(t, r, "a.tar.zst imported\n  example.com/large:1 imported\n")
			verified, err := preseed.Verify(t.Context(), s(), sources, preseed.Options{})
			must(t, err)
			wantOutline(t, verified, "a.tar.zst ok\n  example.com/large:1 ok\n")
			wantClean(t, s(), "k8s.io")
		}

		must(t, os.Remove(blobFile(root, layer)))
		stdin := []preseed.Source{{Path: "-", Namespace: "k8s.io", Reader: bytes.NewReader(oci(i))}}
		r, err := preseed.Import(t.Context(), s(), stdin, preseed.Options{})
		must(t, err)
		wantOutline(t, r, "- failed missing_blob\n  example.com/large:1 failed\n")
	})
}
