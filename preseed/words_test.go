package preseed_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"seedbed/e2e/bundle"
	"seedbed/preseed"
)

// TestAllPlatformsNamesWhatIsMissing is the rest of P09 and P10: the platform, the digest, and how to do
// without.
func TestAllPlatformsNamesWhatIsMissing(t *testing.T) {
	for name, absent := range map[string]bundle.Image{"attestation": attestation(), "foreign": ofPlatform(image("", "b"), other())} {
		t.Run(name, func(t *testing.T) {
			i := withVariants(good, bundle.Good(good), absent)
			dir := place(t, "k8s.io", files{"a.tar": dropAll(bundle.OCI(i), absent).Bytes()})
			e := importDir(t, openOffline(t, t.TempDir()), dir, preseed.Options{AllPlatforms: true}).Bundles[0].Error
			platform := absent.Platform.OS + "/" + absent.Platform.Architecture
			if e == nil || !strings.Contains(e.Found, platform) || !strings.Contains(e.Found, absent.Build().Target.Digest.String()) ||
				!strings.Contains(e.Hint, "--all-platforms") {
				t.Errorf("error %+v, want one with %s and its digest", e, platform)
			}
		})
	}
}

// TestConflictNamesBoth is the rest of P27: the warning names both bundles and both digests.
func TestConflictNamesBoth(t *testing.T) {
	a, b := image(good, "a"), image(good, "b")
	dir := place(t, "k8s.io", files{"a.tar": oci(a), "b.tar": oci(b)})
	r := importDir(t, openOffline(t, t.TempDir()), dir, preseed.Options{})
	names := []string{"/k8s.io/a.tar", "/k8s.io/b.tar", a.Build().Target.Digest.String(), b.Build().Target.Digest.String()}
	if len(r.Warnings) != 1 || slices.ContainsFunc(names, func(n string) bool { return !strings.Contains(r.Warnings[0], n) }) {
		t.Errorf("warnings %q, want one with %q", r.Warnings, names)
	}
}

// TestReplacedBundle is the rest of P08: nothing is left of a bundle that was cut off, and once it is
// whole it is imported.
func TestReplacedBundle(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *preseed.Store) {
		whole := oci(large())
		dir := place(t, "k8s.io", files{"a.tar": whole[:2<<20]})
		wantOutline(t, importDir(t, s, dir, preseed.Options{}), "a.tar failed truncated\n")
		wantNames(t, s, "k8s.io")
		wantClean(t, s, "k8s.io")
		add(t, dir, "k8s.io", files{"a.tar": whole})
		wantOutline(t, importDir(t, s, dir, preseed.Options{}), "a.tar imported\n  example.com/large:1 imported\n")
		wantComplete(t, s, "k8s.io", "example.com/large:1")
	})
}

// TestChangingBundle: a file that grows or is replaced while it is imported fails, and nothing is named.
func TestChangingBundle(t *testing.T) {
	whole := oci(large())
	for name, change := range map[string]func(path string) error{
		"grows": func(path string) error { return os.WriteFile(path, append(slices.Clone(whole), 0), 0o644) },
		"is replaced": func(path string) error {
			return os.Rename(filepath.Join(filepath.Dir(path), "next"), path)
		},
	} {
		onEachStore(t, func(t *testing.T, s *preseed.Store) {
			t.Run(name, func(t *testing.T) {
				space := strings.ReplaceAll(name, " ", "-")
				dir := place(t, space, files{"a.tar": whole, "next": whole})
				var once sync.Once
				r := importDir(t, s, dir, preseed.Options{Progress: func(e preseed.Event) {
					if e.Kind == preseed.EventCopy {
						once.Do(func() { must(t, change(filepath.Join(dir, space, "a.tar"))) })
					}
				}})
				if b := r.Bundles[0]; b.Error == nil || b.Error.Code != "changed_while_reading" {
					t.Errorf("error %+v", b.Error)
				}
				wantNames(t, s, space)
				wantClean(t, s, space)
			})
		})
	}
}

// TestHugeManifest: a manifest of 25 MiB is refused by its size and not read into memory.
func TestHugeManifest(t *testing.T) {
	huge := rewrite(t, bundle.OCI(bundle.Good(good)), func(m *ocispec.Manifest) {
		m.Annotations = map[string]string{"padding": strings.Repeat("x", 25<<20)}
	})
	dir := place(t, "k8s.io", files{"a.tar": huge.Bytes(), "b.tar.zst": bundle.Compress(huge.Bytes(), bundle.Zstd)})
	r, err := preseed.Check(t.Context(), []preseed.Source{{Path: dir}}, preseed.Options{})
	must(t, err)
	for _, b := range r.Bundles {
		if b.Error == nil || b.Error.Code != "not_an_image" || !strings.Contains(b.Error.Found, "a document of 26") {
			t.Errorf("%s: error %+v", b.Path, b.Error)
		}
	}
}
