package preseed_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/opencontainers/go-digest"

	"seedbed/e2e/bundle"
	"seedbed/e2e/containerd"
	"seedbed/preseed"
	"seedbed/preseed/offline"
)

// reopened returns the store, closed and opened again where that makes a difference: what is
// written offline gets its place on the disk when the store is closed.
type reopened func() *preseed.Store

// onEachRoot runs a test on both kinds of stores and tells it the root directory.
func onEachRoot(t *testing.T, test func(t *testing.T, s reopened, root string)) {
	t.Run("offline", func(t *testing.T) {
		root := t.TempDir()
		var s *offline.Store
		closeStore := func() {
			if s != nil {
				must(t, s.Close())
			}
		}
		t.Cleanup(closeStore)
		test(t, func() *preseed.Store {
			closeStore()
			var err error
			s, err = offline.Open(t.Context(), root, offline.Options{})
			must(t, err)
			return s.Preseed()
		}, root)
	})
	t.Run("online", func(t *testing.T) {
		d := containerd.Start(t)
		s := preseed.NewStore(d.Client(t))
		test(t, func() *preseed.Store { return s }, d.Root)
	})
}

func blobFile(root string, d digest.Digest) string {
	return filepath.Join(root, "io.containerd.content.v1.content", "blobs", d.Algorithm().String(), d.Encoded())
}

// TestHeal is the other half of P24: the database lists every blob, and the file of one is not what
// it was. A verification says so, an import or a repair writes it anew in every namespace that had
// it, with the labels that it had, and nothing that it keeps is lost meanwhile.
func TestHeal(t *testing.T) {
	i := large()
	built := i.Build()
	remove := func(t *testing.T, path string) { must(t, os.Remove(path)) }
	cut := func(t *testing.T, path string) {
		info, err := os.Stat(path)
		must(t, err)
		must(t, os.Chmod(path, 0o600))
		must(t, os.Truncate(path, info.Size()-1))
	}
	alter := func(t *testing.T, path string) {
		data, err := os.ReadFile(path)
		must(t, err)
		data[len(data)/2] ^= 1
		must(t, os.Chmod(path, 0o600))
		must(t, os.WriteFile(path, data, 0o600))
	}
	damages := []struct {
		name   string
		digest digest.Digest
		damage func(t *testing.T, path string)
		seen   bool // by an import, which does not read what is there
	}{
		{"layer-absent", built.Layers[0].Digest, remove, true},
		{"layer-cut", built.Layers[0].Digest, cut, true},
		{"layer-altered", built.Layers[0].Digest, alter, false},
		{"config-cut", built.Config.Digest, cut, true},
		{"manifest-absent", built.Target.Digest, remove, true},
		{"manifest-altered", built.Target.Digest, alter, false},
	}
	onEachRoot(t, func(t *testing.T, s reopened, root string) {
		dir := place(t, "one", files{"a.tar": oci(i)})
		sources := []preseed.Source{{Path: dir}}
		importDir(t, s(), dir, preseed.Options{})
		importDir(t, s(), place(t, "two", files{"a.tar": oci(i)}), preseed.Options{})
		for _, c := range damages {
			t.Run(c.name, func(t *testing.T) {
				label(t, s(), "two", c.digest)
				s()
				c.damage(t, blobFile(root, c.digest))
				verified, err := preseed.Verify(t.Context(), s(), sources, preseed.Options{})
				must(t, err)
				wantOutline(t, verified, "a.tar incomplete\n  example.com/large:1 incomplete\n")
				repaired := importDir(t, s(), dir, preseed.Options{})
				if !c.seen {
					wantOutline(t, repaired, "a.tar unchanged\n  example.com/large:1 unchanged\n")
					repaired, err = preseed.Verify(t.Context(), s(), sources, preseed.Options{Repair: true})
					must(t, err)
				}
				wantOutline(t, repaired, "a.tar imported\n  example.com/large:1 imported\n")
				wantHealed(t, s, sources, c.digest)
			})
		}
	})
}

// wantHealed wants the image whole in both namespaces, and the other's labels as they were.
func wantHealed(t *testing.T, s reopened, sources []preseed.Source, d digest.Digest) {
	t.Helper()
	r, err := preseed.Verify(t.Context(), s(), sources, preseed.Options{})
	must(t, err)
	wantOutline(t, r, "a.tar ok\n  example.com/large:1 ok\n")
	for _, namespace := range []string{"one", "two"} {
		wantComplete(t, s(), namespace, "example.com/large:1")
		wantClean(t, s(), namespace)
	}
	info, err := s().Content.Info(in(t, "two"), d)
	must(t, err)
	if info.Labels["example.com/of"] != "another" {
		t.Errorf("labels in the other namespace: %v", info.Labels)
	}
}

func label(t *testing.T, s *preseed.Store, namespace string, d digest.Digest) {
	t.Helper()
	_, err := s.Content.Update(in(t, namespace), content.Info{Digest: d, Labels: map[string]string{"example.com/of": "another"}}, "labels.example.com/of")
	must(t, err)
}

// TestHealFromDamagedBundle: what cannot be healed is not said to be there.
func TestHealFromDamagedBundle(t *testing.T) {
	i := bundle.Good(good)
	layer := i.Build().Layers[0].Digest
	onEachRoot(t, func(t *testing.T, s reopened, root string) {
		dir := place(t, "k8s.io", files{"good.tar": oci(i)})
		importDir(t, s(), dir, preseed.Options{})
		s()
		must(t, os.Remove(blobFile(root, layer)))
		add(t, dir, "k8s.io", files{"good.tar": bundle.OCI(i).FlipByte(bundle.Member(layer)).Bytes()})
		for range 2 {
			wantOutline(t, importDir(t, s(), dir, preseed.Options{}), "good.tar failed digest_mismatch\n  example.com/good:v1 failed\n")
		}
		add(t, dir, "k8s.io", files{"good.tar": oci(i)})
		wantOutline(t, importDir(t, s(), dir, preseed.Options{}), "good.tar imported\n  example.com/good:v1 imported\n")
		wantComplete(t, s(), "k8s.io", good)
		wantClean(t, s(), "k8s.io")
	})
}
