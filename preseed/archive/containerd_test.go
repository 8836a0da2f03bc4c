package archive

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images/archive"
	"github.com/containerd/containerd/v2/plugins/content/local"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"seedbed/e2e/bundle"
)

// The manifests that are made of a docker archive have the digests that they
// get from containerd's own importer, so that an image is the same whoever
// imported it.
func TestDockerManifestIsContainerds(t *testing.T) {
	image := bundle.Good(goodName)
	image.Layers = append(image.Layers, bundle.Layer{Files: []bundle.File{{Name: "b", Data: []byte("b")}}})
	tar := bundle.Docker(image, bundle.Good("example.com/other:v1"))
	for name, tar := range map[string]bundle.Tar{
		"plain layers": tar,
		"gzip layer":   tar.Replace(tar[0].Header.Name, bundle.Compress(tar[0].Data, bundle.Gzip)),
	} {
		want := importIndex(t, tar.Bytes())
		got := openBytes(t, tar.Bytes()).Images
		if len(got) != len(want) {
			t.Fatalf("%s: %d images, containerd has %d", name, len(got), len(want))
		}
		for i := range want {
			if got[i].Target.Digest != want[i].Digest || got[i].Target.Size != want[i].Size {
				t.Errorf("%s: image %d is %s, containerd has %s", name, i, got[i].Target.Digest, want[i].Digest)
			}
			if p := got[i].Target.Platform; p == nil || p.Architecture != want[i].Platform.Architecture {
				t.Errorf("%s: platform %v, containerd has %v", name, p, want[i].Platform)
			}
		}
	}
}

// importIndex is what containerd makes of an archive.
func importIndex(t *testing.T, data []byte) []ocispec.Descriptor {
	t.Helper()
	ctx := context.Background()
	store, err := local.NewStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	desc, err := archive.ImportIndex(ctx, store, bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := content.ReadBlob(ctx, store, desc)
	if err != nil {
		t.Fatal(err)
	}
	var index ocispec.Index
	if err := json.Unmarshal(raw, &index); err != nil {
		t.Fatal(err)
	}
	return index.Manifests
}
