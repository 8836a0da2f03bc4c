package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/gzip"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"seedbed/e2e/bundle"
)

// writeOCI writes an OCI archive, each blob once.
func (m *maker) writeOCI(w io.Writer, images ...image) error {
	t := tar.NewWriter(w)
	err := m.eachMember(images, func(name string, size int64, r io.Reader) error { return addMember(t, name, size, r) })
	if err != nil {
		return err
	}
	return t.Close()
}

// writeLayout writes an OCI layout directory.
func (m *maker) writeLayout(dir string, images ...image) error {
	return m.eachMember(images, func(name string, size int64, r io.Reader) error {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		f, err := os.Create(path)
		if err != nil {
			return err
		}
		if _, err := io.Copy(f, r); err != nil {
			f.Close()
			return err
		}
		return f.Close()
	})
}

// eachMember gives the members of the images' OCI layout to put, each blob once and the index after them, as `docker
// save`, `ctr images export` and skopeo write it.
func (m *maker) eachMember(images []image, put func(name string, size int64, r io.Reader) error) error {
	index := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex}
	seen := map[digest.Digest]bool{}
	for _, i := range images {
		desc := i.manifest
		desc.Annotations = map[string]string{bundle.AnnotationName: i.name}
		index.Manifests = append(index.Manifests, desc)
		for _, blob := range i.blobs() {
			if seen[blob.Digest] {
				continue
			}
			seen[blob.Digest] = true
			if err := m.putBlob(put, blob); err != nil {
				return err
			}
		}
	}
	if err := putDocument(put, ocispec.ImageIndexFile, index); err != nil {
		return err
	}
	return putDocument(put, ocispec.ImageLayoutFile, ocispec.ImageLayout{Version: ocispec.ImageLayoutVersion})
}

// blobs returns all of an image's blobs.
func (i image) blobs() []ocispec.Descriptor {
	all := []ocispec.Descriptor{i.manifest, i.config}
	for _, l := range i.layers {
		all = append(all, l.desc)
	}
	return all
}

func (m *maker) putBlob(put func(string, int64, io.Reader) error, desc ocispec.Descriptor) error {
	f, err := os.Open(m.blob(desc.Digest))
	if err != nil {
		return err
	}
	defer f.Close()
	return put(bundle.Member(desc.Digest), desc.Size, f)
}

// dockerEntry is one image in the manifest.json of a docker archive.
type dockerEntry struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// writeDocker writes a docker archive as `docker save` made it before Docker 25: layers uncompressed, manifest.json last.
func (m *maker) writeDocker(w io.Writer, images ...image) error {
	t := tar.NewWriter(w)
	put := func(name string, size int64, r io.Reader) error { return addMember(t, name, size, r) }
	seen := map[digest.Digest]bool{}
	var entries []dockerEntry
	for _, i := range images {
		entry := dockerEntry{Config: i.config.Digest.Encoded() + ".json", RepoTags: []string{i.name}}
		for _, l := range i.layers {
			name := l.diffID.Encoded() + "/layer.tar"
			entry.Layers = append(entry.Layers, name)
			if seen[l.diffID] {
				continue
			}
			seen[l.diffID] = true
			if err := m.putPlain(put, name, l); err != nil {
				return err
			}
		}
		config, err := os.ReadFile(m.blob(i.config.Digest))
		if err != nil {
			return err
		}
		if err := putDocument(put, entry.Config, json.RawMessage(config)); err != nil {
			return err
		}
		entries = append(entries, entry)
	}
	if err := putDocument(put, "manifest.json", entries); err != nil {
		return err
	}
	return t.Close()
}

// putPlain puts a layer uncompressed: once to learn its size, once to write it.
func (m *maker) putPlain(put func(string, int64, io.Reader) error, name string, l layer) error {
	size, err := m.withPlain(l, func(r io.Reader) (int64, error) { return io.Copy(io.Discard, r) })
	if err != nil {
		return err
	}
	_, err = m.withPlain(l, func(r io.Reader) (int64, error) { return size, put(name, size, r) })
	return err
}

func (m *maker) withPlain(l layer, use func(io.Reader) (int64, error)) (int64, error) {
	f, err := os.Open(m.blob(l.desc.Digest))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		return 0, err
	}
	return use(r)
}

func putDocument(put func(string, int64, io.Reader) error, name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return put(name, int64(len(data)), bytes.NewReader(data))
}

func addMember(t *tar.Writer, name string, size int64, r io.Reader) error {
	if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: size}); err != nil {
		return err
	}
	_, err := io.Copy(t, r)
	return err
}
