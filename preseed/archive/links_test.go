package archive

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/opencontainers/go-digest"

	"seedbed/e2e/bundle"
)

// twice is an image with one layer two times, as a docker archive in which the
// second is a link, and the member names of both.
func twice(t *testing.T, link func(tar bundle.Tar, second, first string) bundle.Tar) bundle.Tar {
	t.Helper()
	image := bundle.Good(goodName)
	image.Layers = append(image.Layers, image.Layers[0])
	tar := bundle.Docker(image)
	var entries []dockerImage
	if err := json.Unmarshal(tar.Get("manifest.json"), &entries); err != nil {
		t.Fatal(err)
	}
	first, second := entries[0].Layers[0], "second/layer.tar"
	entries[0].Layers[1] = second
	data, err := json.Marshal(entries)
	if err != nil {
		t.Fatal(err)
	}
	return link(tar.Replace("manifest.json", data).Add(second, nil), second, first)
}

// P12, P13: links to layers are followed; one that leads nowhere is named.
func TestLinks(t *testing.T) {
	hard, sym := bundle.Tar.Hardlink, bundle.Tar.Symlink
	for _, test := range []struct {
		why   string
		link  func(tar bundle.Tar, second, first string) bundle.Tar
		code  Code // "" is success
		words string
	}{
		{"P12 hard link", func(t bundle.Tar, s, f string) bundle.Tar { return hard(t, s, f) }, "", ""},
		{"P12 hard link with ./", func(t bundle.Tar, s, f string) bundle.Tar { return hard(t, s, "./"+f).Prefix("./") }, "", ""},
		{"P13 ordinary symlink", func(t bundle.Tar, s, f string) bundle.Tar { return sym(t, s, "../"+f) }, "", ""},
		{"P13 symlink from the archive's root", func(t bundle.Tar, s, f string) bundle.Tar { return sym(t, s, f) }, "", ""},
		{"P13 absolute symlink", func(t bundle.Tar, s, f string) bundle.Tar { return sym(t, s, "/"+f) }, "", ""},
		{"symlink to a hard link", func(t bundle.Tar, s, f string) bundle.Tar {
			return sym(t, s, "../third").Add("third", nil).Hardlink("third", f)
		}, "", ""},
		{"P13 dangling", func(t bundle.Tar, s, f string) bundle.Tar { return sym(t, s, "../gone/layer.tar") }, CodeMissingBlob, `"second/layer.tar" is a link to "../gone/layer.tar", which is not in the archive`},
		{"out of the archive", func(t bundle.Tar, s, f string) bundle.Tar { return sym(t, s, "../../../etc/passwd") }, CodeMissingBlob, `a link to "../../../etc/passwd"`},
		{"a link to itself", func(t bundle.Tar, s, f string) bundle.Tar { return sym(t, s, "layer.tar") }, CodeMissingBlob, "links in a circle"},
		{"a circle of links", func(t bundle.Tar, s, f string) bundle.Tar {
			return sym(t, s, "../third").Add("third", nil).Hardlink("third", s)
		}, CodeMissingBlob, `"second/layer.tar" -> "third" -> "second/layer.tar"`},
		{"missing layer", func(t bundle.Tar, s, f string) bundle.Tar { return t.Drop(s) }, CodeMissingBlob, `"second/layer.tar": not in the archive`},
		{"xz layer", func(t bundle.Tar, s, f string) bundle.Tar { return t.Replace(s, []byte("\xfd7zXZ\x00\x00\x04")) }, CodeUnsupportedCompression, "xz"},
	} {
		t.Run(test.why, func(t *testing.T) {
			a := openBytes(t, twice(t, test.link).Bytes())
			if test.code != "" {
				wantError(t, a.Images[0].Err, test.code, test.words)
				return
			}
			wantNames(t, a, goodName)
			for _, layer := range wantManifest(t, a).Layers {
				wantBlob(t, a, layer.Digest)
			}
		})
	}
}

// manifest is what the tests look at of a manifest.
type manifest struct {
	MediaType string
	Config    struct{ Digest digest.Digest }
	Layers    []struct {
		MediaType string
		Digest    digest.Digest
		Size      int64
	}
}

func wantManifest(t *testing.T, a *Archive) manifest {
	t.Helper()
	var m manifest
	if err := json.Unmarshal(wantBlob(t, a, a.Images[0].Target.Digest), &m); err != nil {
		t.Fatal(err)
	}
	wantBlob(t, a, m.Config.Digest)
	return m
}

// One damaged image of a docker archive does not hide the others.
func TestDockerOneBadImage(t *testing.T) {
	good, bad := bundle.Good(goodName), bundle.Good("example.com/bad:v1")
	bad.Layers[0].Files[0].Name = "other"
	tar := bundle.Docker(good, bad)
	var entries []dockerImage
	if err := json.Unmarshal(tar.Get("manifest.json"), &entries); err != nil {
		t.Fatal(err)
	}
	a := openBytes(t, tar.Drop(entries[1].Layers[0]).Bytes())
	wantBlob(t, a, a.Images[0].Target.Digest)
	wantError(t, a.Images[1].Err, CodeMissingBlob, "the layer that manifest.json names")
	a = openBytes(t, tar.Replace(entries[1].Config, []byte("<html>")).Bytes())
	wantError(t, a.Images[1].Err, CodeNotAnImage, "an HTML page")
}

// Layers of a docker archive that are compressed get the digest of their bytes.
func TestDockerCompressedLayers(t *testing.T) {
	image := bundle.Good(goodName)
	for c, mediaType := range map[bundle.Compression]string{bundle.Gzip: mediaTypeDockerLayerGzip, bundle.Zstd: mediaTypeDockerLayerZstd, bundle.None: mediaTypeDockerLayer} {
		tar := bundle.Docker(image)
		name := tar[0].Header.Name
		data := bundle.Compress(tar.Get(name), c)
		a := openBytes(t, tar.Replace(name, data).Bytes())
		layer := wantManifest(t, a).Layers[0]
		if layer.MediaType != mediaType || layer.Digest != digest.FromBytes(data) || layer.Size != int64(len(data)) {
			t.Errorf("%q: layer = %+v", c, layer)
		}
		wantBlob(t, a, layer.Digest)
	}
	// Their digests are taken from their names where those tell them.
	hybrid := bundle.Hybrid(image).Drop("index.json")
	layer := image.Build().Layers[0].Digest
	a := openBytes(t, hybrid.FlipByte(bundle.Member(layer)).Bytes())
	if got := wantManifest(t, a).Layers[0].Digest; got != layer {
		t.Errorf("digest = %s, want that of the name, %s", got, layer)
	}
}

// Of two members with one name the later counts.
func TestDuplicates(t *testing.T) {
	image := bundle.Good(goodName)
	tar := bundle.OCI(image)
	old := bundle.Tar{}.Add("index.json", []byte("old")).Add(bundle.Member(image.Build().Config.Digest), []byte("old"))
	wantWhole(t, openBytes(t, append(old, tar...).Bytes()), image.Build())
}

func TestIgnored(t *testing.T) {
	image := bundle.Good(goodName)
	clutter := []string{"../out", "/abs", ".DS_Store", "blobs/sha256/short"}
	for _, form := range []bundle.Tar{bundle.OCI(image), bundle.Docker(image)} {
		for _, name := range clutter {
			form = form.Add(name, []byte("x"))
		}
		a := openBytes(t, form.Bytes())
		wantNames(t, a, goodName)
		if a.IgnoredCount != len(clutter) || len(a.Ignored) != len(clutter) {
			t.Errorf("ignored %d: %q, want %q", a.IgnoredCount, a.Ignored, clutter)
		}
	}
}

// Blobs of an OCI archive may be links too: tar makes hard links of them when
// the layout it packs has such.
func TestOCIHardLink(t *testing.T) {
	image := bundle.Good(goodName)
	layer := image.Build().Layers[0].Digest
	tar := bundle.OCI(image)
	data := tar.Get(bundle.Member(layer))
	tar = tar.Add("other", bytes.Clone(data)).Hardlink(bundle.Member(layer), "other")
	wantWhole(t, openBytes(t, tar.Bytes()), image.Build())
	wantError(t, openBytes(t, tar.Drop("other").Bytes()).Missing(layer), CodeMissingBlob, `a link to "other"`)
}
