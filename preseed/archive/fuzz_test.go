package archive

import (
	"bytes"
	"context"
	"io"
	"testing"

	"seedbed/e2e/bundle"
)

// FuzzArchiveIndex reads any bytes as a tar, with a table so small that the
// walks after the first are tried as well. Every blob that is found must lie
// within the archive.
func FuzzArchiveIndex(f *testing.F) {
	good := bundle.Good(goodName)
	for _, form := range []bundle.Tar{
		bundle.OCI(good), bundle.Docker(good), bundle.Hybrid(good), bundle.OCI(good).Prefix("./"),
		bundle.Docker(good).Add("link", nil).Hardlink("link", "link"),
		bundle.Docker(good).Add("link", nil).Symlink("link", "../x"),
	} {
		f.Add(form.Bytes(), 0)
		f.Add(form.Bytes(), tableBudget)
	}
	f.Fuzz(func(t *testing.T, data []byte, budget int) {
		tab, err := index(context.Background(), bytes.NewReader(data), int64(len(data)), budget)
		if err != nil {
			return
		}
		a := &Archive{}
		for _, read := range []func(context.Context, *table) error{a.readOCI, a.readDocker} {
			if read(context.Background(), tab) == nil {
				wantReadable(t, a)
			}
		}
		_ = tab.survey.verdict().Error()
	})
}

// wantReadable checks that what an archive lists can be asked for.
func wantReadable(t *testing.T, a *Archive) {
	if len(a.Images) == 0 {
		t.Error("an archive without images and without an error")
	}
	for _, image := range a.Images {
		b, ok := a.Blob(image.Target.Digest)
		if !ok {
			if a.Missing(image.Target.Digest) == nil {
				t.Error("no blob and no reason")
			}
			continue
		}
		if n, err := io.Copy(io.Discard, b.Reader()); err != nil || n != b.Size {
			t.Errorf("read %d bytes of %d: %v", n, b.Size, err)
		}
	}
}

// FuzzOCIIndex reads any bytes as an index.json.
func FuzzOCIIndex(f *testing.F) {
	f.Add(bundle.OCI(bundle.Good(goodName)).Get("index.json"))
	f.Add([]byte(`{"manifests":[{"digest":"sha256:x","size":-1}]}`))
	f.Add([]byte(`<html>`))
	f.Fuzz(func(t *testing.T, data []byte) {
		images, err := parseIndex(data)
		if err == nil && len(images) == 0 {
			t.Error("no images and no error")
		}
		for _, image := range images {
			if image.Err == nil && blobName(image.Target.Digest) == "" {
				t.Errorf("digest %q passed", image.Target.Digest)
			}
		}
	})
}

// FuzzDockerManifest reads any bytes as the manifest.json of an archive with a
// layer and a config.
func FuzzDockerManifest(f *testing.F) {
	form := bundle.Docker(bundle.Good(goodName))
	f.Add(form.Get("manifest.json"))
	f.Add([]byte(`[{"Config":"../x","RepoTags":["a","b"],"Layers":null}]`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		raw := form.Replace("manifest.json", data).Bytes()
		a := &Archive{Size: int64(len(raw))}
		if (Options{}).readTar(context.Background(), a, bytes.NewReader(raw)) == nil {
			wantReadable(t, a)
		}
	})
}
