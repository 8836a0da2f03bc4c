package preseed_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"seedbed/e2e/bundle"
	"seedbed/preseed"
)

// rewrite returns the OCI archive with another manifest in the place of its only
// one, with the digest that it has then.
func rewrite(t *testing.T, archive bundle.Tar, change func(*ocispec.Manifest)) bundle.Tar {
	t.Helper()
	var index ocispec.Index
	must(t, json.Unmarshal(archive.Get("index.json"), &index))
	old := bundle.Member(index.Manifests[0].Digest)
	var manifest ocispec.Manifest
	must(t, json.Unmarshal(archive.Get(old), &manifest))
	change(&manifest)
	data, err := json.Marshal(manifest)
	must(t, err)
	index.Manifests[0].Digest, index.Manifests[0].Size = digest.FromBytes(data), int64(len(data))
	text, err := json.Marshal(index)
	must(t, err)
	return archive.Replace("index.json", text).Drop(old).Add(bundle.Member(digest.FromBytes(data)), data)
}

// TestCheckDisbelievesManifests: what a manifest says is compared with what there is, though
// every blob has its digest.
func TestCheckDisbelievesManifests(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*ocispec.Manifest)
		want   string
	}{
		"nothing":              {func(*ocispec.Manifest) {}, "ok"},
		"a layer's size":       {func(m *ocispec.Manifest) { m.Layers[0].Size++ }, "failed digest_mismatch"},
		"the config's size":    {func(m *ocispec.Manifest) { m.Config.Size-- }, "failed digest_mismatch"},
		"a layer too few":      {func(m *ocispec.Manifest) { m.Layers = nil }, "failed not_an_image"},
		"a layer too many":     {func(m *ocispec.Manifest) { m.Layers = append(m.Layers, m.Layers[0]) }, "failed not_an_image"},
		"a size below nothing": {func(m *ocispec.Manifest) { m.Layers[0].Size = -1 }, "failed not_an_image"},
	} {
		dir := place(t, "k8s.io", files{"x.tar": rewrite(t, bundle.OCI(bundle.Good(good)), test.change).Bytes()})
		r, err := preseed.Check(t.Context(), []preseed.Source{{Path: dir}}, preseed.Options{})
		must(t, err)
		got := string(r.Bundles[0].Status)
		if e := r.Bundles[0].Error; e != nil {
			got += " " + string(e.Code)
		}
		if got != test.want {
			t.Errorf("%s: %s, want %s: %s", name, got, test.want, r.Bundles[0].Reason)
		}
	}
}

// TestUnpinLeavesOtherSources: bundles that went from another preseed directory are not this
// run's business.
func TestUnpinLeavesOtherSources(t *testing.T) {
	s := openOffline(t, t.TempDir())
	gone := place(t, "k8s.io", files{"good.tar": oci(bundle.Good(good))})
	importDir(t, s, gone, preseed.Options{})
	path := filepath.Join(gone, "k8s.io", "good.tar")
	must(t, os.Remove(path))
	importDir(t, s, place(t, "k8s.io", files{"other.tar": oci(bundle.Good("example.com/other:v1"))}), preseed.Options{UnpinMissing: true})
	wantLabels(t, s, map[string]string{preseed.SourceLabel: path, preseed.PinLabel: preseed.PinValue})
}

// TestDamagedCopyFailsItsBundle: a layer that another bundle brings whole does not make good the
// bundle whose copy is damaged, whichever of the two comes first.
func TestDamagedCopyFailsItsBundle(t *testing.T) {
	whole, damaged := large(), large()
	damaged.Name = "example.com/damaged:1"
	bad := bundle.OCI(damaged).FlipByte(layerOf(damaged)).Bytes()
	const failed, imported = " failed digest_mismatch\n  example.com/damaged:1 failed\n", " imported\n  example.com/large:1 imported\n"
	for want, f := range map[string]files{
		"a.tar" + failed + "b.tar" + imported: {"a.tar": bad, "b.tar": oci(whole)},
		"a.tar" + imported + "b.tar" + failed: {"a.tar": oci(whole), "b.tar": bad},
	} {
		s := openOffline(t, t.TempDir())
		wantOutline(t, importDir(t, s, place(t, "k8s.io", f), preseed.Options{}), want)
		wantNames(t, s, "k8s.io", whole.Name)
	}
}
