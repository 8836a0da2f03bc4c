package preseed_test

import (
	"bytes"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"seedbed/e2e/bundle"
	"seedbed/preseed"
)

// TestImportBundles imports one directory for each case. What is right for each is what the public
// report that the id names asks for.
func TestImportBundles(t *testing.T) {
	goodImage := bundle.Good(good)
	archive := bundle.OCI(goodImage)
	whole := archive.Bytes()
	foreign := goodImage
	foreign.Platform = other()
	attested := withVariants(good, goodImage, attestation())
	foreignToo := withVariants(good, image("", "a"), ofPlatform(image("", "b"), other()))

	cases := []struct {
		id    string
		why   string
		files files
		o     preseed.Options
		want  string
		names []string
	}{
		{
			"P01", "an image without a name would be collected",
			files{"a.tar": oci(bundle.Good(""))},
			preseed.Options{},
			"a.tar failed no_name\n   failed\n", nil,
		},
		{
			"P01-name", "--name names it",
			files{"a.tar": oci(bundle.Good(""))},
			preseed.Options{Name: good},
			"a.tar imported\n  example.com/good:v1 imported\n",
			[]string{good},
		},
		{
			"P02", "RepoTags null",
			files{"a.tar": docker(bundle.Good(""))},
			preseed.Options{},
			"a.tar failed no_name\n   failed\n", nil,
		},
		{
			"P03", "only a tag",
			files{"a.tar": oci(bundle.Image{RefName: "latest", Layers: goodImage.Layers})},
			preseed.Options{},
			"a.tar failed no_name\n  latest failed\n", nil,
		},
		{
			"P04", "short names: normalised in docker archives, stored as given in OCI ones",
			files{"a.tar": docker(bundle.Good("app:1")), "b.tar": oci(bundle.Good("app:2"))},
			preseed.Options{},
			"a.tar imported\n  docker.io/library/app:1 imported\nb.tar imported\n  app:2 imported\n",
			[]string{"app:2", "docker.io/library/app:1"},
		},
		{
			"P05", "the bytes decide how it is compressed",
			files{
				"a.tar": bundle.Compress(whole, bundle.Gzip), "b.tar": bundle.Compress(oci(bundle.Good("example.com/b:1")), bundle.Zstd),
				"c.tar": append([]byte("\xfd7zXZ\x00"), make([]byte, 100)...),
			},
			preseed.Options{},
			"a.tar imported\n  example.com/good:v1 imported\nb.tar imported\n  example.com/b:1 imported\nc.tar failed unsupported_compression\n",
			[]string{"example.com/b:1", good},
		},
		{
			"P06", "an error page that was saved as an archive",
			files{"a.tar.zst": []byte("<!DOCTYPE html><html><body>404</body></html>"), "b.tar": whole},
			preseed.Options{},
			"a.tar.zst failed not_an_image\nb.tar imported\n  example.com/good:v1 imported\n",
			[]string{good},
		},
		{
			"P07", "empty, too short, zeros, text",
			files{"a.tar": {}, "b.tar": []byte("abc"), "c.tar": make([]byte, 1024), "d.tar": []byte("just some words\n")},
			preseed.Options{},
			"a.tar failed empty\nb.tar failed not_an_image\nc.tar failed not_an_image\nd.tar failed not_an_image\n",
			nil,
		},
		{
			"P08", "cut off inside a blob",
			files{"a.tar": whole[:2500]},
			preseed.Options{},
			"a.tar failed truncated\n", nil,
		},
		{
			"P09", "an attestation that is not there is not needed",
			files{"a.tar": dropAll(bundle.OCI(attested), attested.Variants[1]).Bytes()},
			preseed.Options{},
			"a.tar imported\n  example.com/good:v1 imported\n",
			[]string{good},
		},
		{
			"P10", "a platform that is not there is not needed",
			files{"a.tar": dropAll(bundle.OCI(foreignToo), foreignToo.Variants[1]).Bytes()},
			preseed.Options{},
			"a.tar imported\n  example.com/good:v1 imported\n",
			[]string{good},
		},
		{
			"P10-all", "unless all platforms are asked for",
			files{"a.tar": dropAll(bundle.OCI(foreignToo), foreignToo.Variants[1]).Bytes()},
			preseed.Options{AllPlatforms: true},
			"a.tar failed missing_blob\n  example.com/good:v1 failed\n", nil,
		},
		{
			"P11", "another platform only, in the descriptor and in the config",
			files{"a.tar": oci(foreign), "b.tar": editIndex(t, bundle.OCI(foreign), dropPlatform).Bytes(), "c.tar": docker(foreign)},
			preseed.Options{},
			"a.tar failed wrong_platform\n  example.com/good:v1 failed\n" +
				"b.tar failed wrong_platform\n  example.com/good:v1 failed\n" +
				"c.tar failed wrong_platform\n  example.com/good:v1 failed\n",
			nil,
		},
		{
			"P11-own", "the host's platform, said by the config alone",
			files{"b.tar": editIndex(t, archive, dropPlatform).Bytes()},
			preseed.Options{},
			"b.tar imported\n  example.com/good:v1 imported\n",
			[]string{good},
		},
		{
			"P20", "a bad bundle does not stop the next",
			files{"a-bad.tar": []byte("bad"), "b-good.tar": whole},
			preseed.Options{},
			"a-bad.tar failed not_an_image\nb-good.tar imported\n  example.com/good:v1 imported\n",
			[]string{good},
		},
		{
			"P20-fast", "unless --fail-fast",
			files{"a.tar": oci(image("example.com/a:1", "a")), "b-bad.tar": []byte("bad"), "c.tar": whole},
			preseed.Options{FailFast: true},
			"a.tar imported\n  example.com/a:1 imported\nb-bad.tar failed not_an_image\nc.tar skipped\n",
			[]string{"example.com/a:1"},
		},
		{
			"P27", "two bundles give one name to different images: the last has it",
			files{"a.tar": oci(image(good, "a")), "b.tar": oci(image(good, "b"))},
			preseed.Options{},
			"a.tar unchanged\n  example.com/good:v1 unchanged\nb.tar imported\n  example.com/good:v1 imported\n",
			[]string{good},
		},
		{
			"P27-strict", "and neither with --strict",
			files{"a.tar": oci(image(good, "a")), "b.tar": oci(image(good, "b"))},
			preseed.Options{Strict: true},
			"a.tar failed conflict\n  example.com/good:v1 failed\nb.tar failed conflict\n  example.com/good:v1 failed\n",
			nil,
		},
		{
			"P28", "three with a name and one without",
			files{"a.tar": oci(image("example.com/a:1", "a"), image("example.com/b:1", "b"), image("", "c"), image("example.com/d:1", "d"))},
			preseed.Options{},
			"a.tar failed no_name\n  example.com/a:1 imported\n  example.com/b:1 imported\n   failed\n  example.com/d:1 imported\n",
			[]string{"example.com/a:1", "example.com/b:1", "example.com/d:1"},
		},
		{
			"P29", "indexes that are empty, missing, of another version, no JSON, with a bad name",
			files{
				"a.tar": archive.Replace("index.json", []byte(`{"schemaVersion":2,"manifests":[]}`)).Bytes(),
				"b.tar": archive.Drop("index.json").Bytes(),
				"c.tar": archive.Replace("oci-layout", []byte(`{"imageLayoutVersion":"2.0.0"}`)).Bytes(),
				"d.tar": archive.Replace("index.json", []byte("<html>")).Bytes(),
				"e.tar": oci(bundle.Good("UPPER/Case:1")),
			},
			preseed.Options{},
			"a.tar failed not_an_image\nb.tar failed not_an_image\nc.tar failed not_an_image\nd.tar failed not_an_image\n" +
				"e.tar failed bad_name\n  UPPER/Case:1 failed\n",
			nil,
		},
		{
			"flipped", "a flipped byte and a missing layer beside the good bundle",
			files{"a.tar": renamed(archive.FlipByte(layerOf(goodImage))), "b.tar": renamed(archive.Drop(layerOf(goodImage))), "c.tar": whole},
			preseed.Options{},
			"a.tar failed digest_mismatch\n  example.com/evil:v1 failed\nb.tar failed missing_blob\n  example.com/evil:v1 failed\n" +
				"c.tar imported\n  example.com/good:v1 imported\n",
			[]string{good},
		},
		{
			"flipped-after", "the damaged copy is noticed wherever it stands",
			files{"a.tar": whole, "b.tar": renamed(archive.FlipByte(layerOf(goodImage)))},
			preseed.Options{},
			"a.tar imported\n  example.com/good:v1 imported\nb.tar failed digest_mismatch\n  example.com/evil:v1 failed\n",
			[]string{good},
		},
		{
			"flipped-large", "a layer that is hashed only where it is written",
			files{"a.tar": bundle.OCI(large()).FlipByte(layerOf(large())).Bytes()},
			preseed.Options{},
			"a.tar failed digest_mismatch\n  example.com/large:1 failed\n", nil,
		},
		{
			"artifact", "a chart is no image",
			files{"a.tar": chart(t)},
			preseed.Options{},
			"a.tar skipped\n  example.com/chart:1 artifact\n", nil,
		},
		{
			"digest-refs", "a record under the digest as well",
			files{"a.tar": whole},
			preseed.Options{DigestRefs: true},
			"a.tar imported\n  example.com/good:v1 imported\n",
			[]string{good, "example.com/good@" + goodImage.Build().Target.Digest.String()},
		},
		{
			"dry-run", "nothing is written",
			files{"a.tar": whole},
			preseed.Options{DryRun: true},
			"a.tar imported\n  example.com/good:v1 imported\n", nil,
		},
	}
	onEachStore(t, func(t *testing.T, s *preseed.Store) {
		for _, c := range cases {
			t.Run(c.id, func(t *testing.T) {
				r := importDir(t, s, place(t, c.id, c.files), c.o)
				wantOutline(t, r, c.want)
				wantNames(t, s, c.id, c.names...)
				wantClean(t, s, c.id)
				for _, name := range c.names {
					wantComplete(t, s, c.id, name)
				}
				if t.Failed() {
					t.Logf("the case: %s", c.why)
				}
			})
		}
	})
}

// TestErrorsSayWhatToDo looks at the words of errors: each is told from the others.
func TestErrorsSayWhatToDo(t *testing.T) {
	foreign := bundle.Good(good)
	foreign.Platform = other()
	whole := oci(bundle.Good(good))
	dir := place(t, "k8s.io", files{
		"a.tar": {}, "b.tar": []byte("abc"), "c.tar": make([]byte, 1024), "d.tar": []byte("just some words, and a few more\n"),
		"e.tar": whole[:2500], "f.tar": oci(foreign), "g.tar": oci(bundle.Good("")),
	})
	r := importDir(t, openOffline(t, t.TempDir()), dir, preseed.Options{})
	said := map[string]string{}
	for _, b := range r.Bundles {
		if b.Error == nil {
			t.Fatalf("%s: no error", b.Path)
		}
		if where, again := said[b.Error.Found]; again {
			t.Errorf("%s and %s say the same: %q", where, b.Path, b.Error.Found)
		}
		said[b.Error.Found] = b.Path
		if b.Reason == "" || strings.Contains(b.Reason, "failed to") {
			t.Errorf("%s: reason %q", b.Path, b.Reason)
		}
	}
	f := r.Bundles[5].Error
	if !strings.Contains(f.Found, "has linux/"+other().Architecture) || f.Hint == "" {
		t.Errorf("wrong platform: found %q, hint %q", f.Found, f.Hint)
	}
}

// TestImportStream reads a bundle from a reader.
func TestImportStream(t *testing.T) {
	s := openOffline(t, t.TempDir())
	source := preseed.Source{Path: "-", Reader: bytes.NewReader(bundle.Compress(oci(bundle.Good(good)), bundle.Gzip))}
	r, err := preseed.Import(t.Context(), s, []preseed.Source{source}, preseed.Options{Namespace: "k8s.io"})
	if err != nil {
		t.Fatal(err)
	}
	wantOutline(t, r, "- imported\n  example.com/good:v1 imported\n")
	wantComplete(t, s, "k8s.io", good)
}

func dropPlatform(i *ocispec.Index) { i.Manifests[0].Platform = nil }

func ofPlatform(i bundle.Image, p ocispec.Platform) bundle.Image {
	i.Platform = p
	return i
}

func withVariants(name string, variants ...bundle.Image) bundle.Image {
	return bundle.Image{Name: name, Variants: variants}
}

func attestation() bundle.Image {
	return ofPlatform(image("", "attestation"), ocispec.Platform{OS: "unknown", Architecture: "unknown"})
}

// dropAll removes every blob of an image from an archive.
func dropAll(a bundle.Tar, i bundle.Image) bundle.Tar {
	b := i.Build()
	for _, d := range append(b.Layers, b.Config, b.Target) {
		a = a.Drop(bundle.Member(d.Digest))
	}
	return a
}

// renamed gives the good bundle's image another name, with the same blobs.
func renamed(a bundle.Tar) []byte {
	index := bytes.ReplaceAll(a.Get("index.json"), []byte(good), []byte("example.com/evil:v1"))
	return a.Replace("index.json", index).Bytes()
}

// large has a layer of 3 MiB that does not compress.
func large() bundle.Image {
	data := make([]byte, 3<<20)
	for i, seed := 0, uint32(1); i < len(data); i++ {
		seed = seed*1664525 + 1013904223
		data[i] = byte(seed >> 24)
	}
	return bundle.Image{Name: "example.com/large:1", Layers: []bundle.Layer{{Files: []bundle.File{{Name: "a", Data: data}}}}}
}

// chart is an OCI artifact as Helm pushes it.
func chart(t *testing.T) []byte {
	t.Helper()
	i := bundle.Good("example.com/chart:1")
	b := i.Build()
	a := bundle.OCI(i)
	manifest := bytes.ReplaceAll(a.Get(bundle.Member(b.Target.Digest)), []byte(ocispec.MediaTypeImageConfig), []byte("application/vnd.cncf.helm.config.v1+json"))
	d := b.Target.Digest.Algorithm().FromBytes(manifest)
	a = a.Drop(bundle.Member(b.Target.Digest)).Add(bundle.Member(d), manifest)
	return editIndex(t, a, func(index *ocispec.Index) {
		index.Manifests[0].Digest, index.Manifests[0].Size, index.Manifests[0].Platform = d, int64(len(manifest)), nil
	}).Bytes()
}
