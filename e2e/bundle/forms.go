package bundle

import (
	"io"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// OCI returns an OCI archive of the images: oci-layout, index.json, then the
// blobs, each once.
func OCI(images ...Image) Tar {
	var blobs Tar
	index := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex}
	put := collector(&blobs)
	for _, i := range images {
		index.Manifests = append(index.Manifests, i.annotated(i.build(put).Target))
	}
	return append(Tar{
		file(ocispec.ImageLayoutFile, encode(ocispec.ImageLayout{Version: ocispec.ImageLayoutVersion})),
		file(ocispec.ImageIndexFile, encode(index)),
	}, blobs...)
}

// dockerEntry is an image in the manifest.json of a docker archive.
type dockerEntry struct {
	Config   string
	RepoTags []string
	Layers   []string
}

func (i Image) dockerEntry(config string) dockerEntry {
	e := dockerEntry{Config: config}
	if i.Name != "" {
		e.RepoTags = []string{i.Name}
	}
	return e
}

// Docker returns a docker archive as `docker save` made it before Docker 25:
// ID/layer.tar for each layer, uncompressed, ID.json for the config, and
// manifest.json as the last. RepoTags is null for an image without a name.
// Images with variants have no such form.
func Docker(images ...Image) Tar {
	var t Tar
	seen := map[string]bool{}
	add := func(name string, data []byte) {
		if !seen[name] {
			t = append(t, file(name, data))
		}
		seen[name] = true
	}
	var entries []dockerEntry
	for _, i := range images {
		var diffIDs []digest.Digest
		var layers []string
		for _, l := range i.Layers {
			data := l.tar()
			id := digest.FromBytes(data)
			add(id.Encoded()+"/layer.tar", data)
			diffIDs, layers = append(diffIDs, id), append(layers, id.Encoded()+"/layer.tar")
		}
		config := i.config(diffIDs)
		entry := i.dockerEntry(digest.FromBytes(config).Encoded() + ".json")
		entry.Layers = layers
		add(entry.Config, config)
		entries = append(entries, entry)
	}
	return t.Add("manifest.json", encode(entries))
}

// Hybrid returns an archive as `docker save` makes it since Docker 25: an OCI
// archive that has a manifest.json for older readers as well.
func Hybrid(images ...Image) Tar {
	var entries []dockerEntry
	for _, i := range images {
		b := i.Build()
		entry := i.dockerEntry(Member(b.Config.Digest))
		for _, l := range b.Layers {
			entry.Layers = append(entry.Layers, Member(l.Digest))
		}
		entries = append(entries, entry)
	}
	return OCI(images...).Add("manifest.json", encode(entries))
}

// Member is the name of a blob in the OCI forms.
func Member(d digest.Digest) string {
	return "blobs/" + d.Algorithm().String() + "/" + d.Encoded()
}

// WriteOCI writes an OCI archive of the images.
func WriteOCI(w io.Writer, images ...Image) error { return OCI(images...).Write(w) }

// WriteDocker writes a docker archive of the images.
func WriteDocker(w io.Writer, images ...Image) error { return Docker(images...).Write(w) }

// WriteOCILayout writes the images as an OCI layout into the directory dir.
func WriteOCILayout(dir string, images ...Image) error { return OCI(images...).Unpack(dir) }

func collector(t *Tar) func(ocispec.Descriptor, []byte) {
	seen := map[digest.Digest]bool{}
	return func(d ocispec.Descriptor, data []byte) {
		if !seen[d.Digest] {
			*t = append(*t, file(Member(d.Digest), data))
		}
		seen[d.Digest] = true
	}
}
