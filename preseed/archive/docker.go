package archive

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Media types of Docker's image manifest, version 2, schema 2.
const (
	mediaTypeDockerList      = "application/vnd.docker.distribution.manifest.list.v2+json"
	mediaTypeDockerManifest  = "application/vnd.docker.distribution.manifest.v2+json"
	mediaTypeDockerConfig    = "application/vnd.docker.container.image.v1+json"
	mediaTypeDockerLayer     = "application/vnd.docker.image.rootfs.diff.tar"
	mediaTypeDockerLayerGzip = "application/vnd.docker.image.rootfs.diff.tar.gzip"
	mediaTypeDockerLayerZstd = "application/vnd.docker.image.rootfs.diff.tar.zstd"
)

// dockerImage is an entry of the manifest.json of a docker archive.
type dockerImage struct {
	Config   string
	RepoTags []string // nil for an image without a name
	Layers   []string
}

// dockerConfig is what is needed of an image's config.
type dockerConfig struct {
	ocispec.Platform
	RootFS ocispec.RootFS `json:"rootfs"`
}

// docker makes an archive's images of its manifest.json.
type docker struct {
	t     *table
	blobs map[digest.Digest]*Blob
	used  map[string]bool // members that belong to an image

	hashed bool // a layer had to be read for its digest
}

// readDocker reads the index of a docker archive and makes the manifests that
// it does not have, with the same bytes as containerd's importer makes them.
func (a *Archive) readDocker(ctx context.Context, t *table) error {
	a.Format = DockerArchive
	data, err := t.document(manifestFile)
	if err != nil {
		return err
	}
	images, err := parseDocker(data)
	if err != nil {
		return err
	}
	if err := t.ensure(ctx, namesOf(images)); err != nil {
		return err
	}
	d := &docker{t: t, blobs: map[digest.Digest]*Blob{}, used: map[string]bool{manifestFile: true, "repositories": true}}
	for _, image := range images {
		target, err := d.manifest(ctx, image)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		a.addDocker(image.RepoTags, target, err)
	}
	a.find, a.list = d.find, func() []*Blob { return slices.Collect(maps.Values(d.blobs)) }
	a.costly = a.costly || d.hashed
	a.ignore(t, func(name string) bool { return d.used[name] })
	return nil
}

// parseDocker reads a manifest.json.
func parseDocker(data []byte) ([]dockerImage, error) {
	var images []dockerImage
	if err := json.Unmarshal(data, &images); err != nil {
		return nil, notJSON(manifestFile, data, err)
	}
	if len(images) == 0 {
		return nil, &Error{
			Code: CodeNotAnImage, Member: manifestFile, Found: "it lists no image", Expected: "at least one image",
			Advice: "the program that wrote it found nothing to save: look at its messages",
		}
	}
	return images, nil
}

func namesOf(images []dockerImage) []string {
	var names []string
	for _, image := range images {
		for _, raw := range append(image.Layers[:len(image.Layers):len(image.Layers)], image.Config) {
			if name := cleanName(raw); name != "" {
				names = append(names, name)
			}
		}
	}
	return names
}

func (a *Archive) addDocker(tags []string, target ocispec.Descriptor, err error) {
	if len(tags) == 0 {
		tags = []string{""}
	}
	for _, tag := range tags {
		a.Images = append(a.Images, Image{Name: tag, Target: target, Err: err})
	}
}

// manifest makes the manifest of one image.
func (d *docker) manifest(ctx context.Context, image dockerImage) (ocispec.Descriptor, error) {
	config, configDesc, err := d.config(image.Config)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	if got, want := len(image.Layers), len(config.RootFS.DiffIDs); got != want {
		return ocispec.Descriptor{}, &Error{Code: CodeNotAnImage, Member: manifestFile, Found: fmt.Sprintf("%d layers for config %s", got, quote(image.Config)), Expected: fmt.Sprintf("%d, as many as its diff IDs", want)}
	}
	layers := make([]ocispec.Descriptor, len(image.Layers))
	for i, name := range image.Layers {
		if layers[i], err = d.layer(ctx, name, config.RootFS.DiffIDs[i]); err != nil {
			return ocispec.Descriptor{}, err
		}
	}
	data, err := json.Marshal(struct {
		SchemaVersion int                  `json:"schemaVersion"`
		MediaType     string               `json:"mediaType"`
		Config        ocispec.Descriptor   `json:"config"`
		Layers        []ocispec.Descriptor `json:"layers"`
	}{2, mediaTypeDockerManifest, configDesc, layers})
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	desc := ocispec.Descriptor{MediaType: mediaTypeDockerManifest, Digest: digest.FromBytes(data), Size: int64(len(data))}
	if config.OS != "" || config.Architecture != "" {
		desc.Platform = &config.Platform
	}
	d.blobs[desc.Digest] = &Blob{Digest: desc.Digest, Size: desc.Size, ReaderAt: bytes.NewReader(data)}
	return desc, nil
}

func (d *docker) config(raw string) (dockerConfig, ocispec.Descriptor, error) {
	var config dockerConfig
	name, m, err := d.member("config", raw)
	if err != nil {
		return config, ocispec.Descriptor{}, err
	}
	data, err := d.t.document(name)
	if err != nil {
		return config, ocispec.Descriptor{}, err
	}
	if err := json.Unmarshal(data, &config); err != nil {
		return config, ocispec.Descriptor{}, notJSON(name, data, err)
	}
	return config, d.keep(mediaTypeDockerConfig, digest.FromBytes(data), name, m), nil
}

// layer finds the descriptor of a layer: an uncompressed one has its diff ID
// for a digest, a compressed one what its name or else its bytes say.
func (d *docker) layer(ctx context.Context, raw string, diffID digest.Digest) (ocispec.Descriptor, error) {
	name, m, err := d.member("layer", raw)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	data := d.t.at("", name, m)
	mediaType, err := layerType(name, data)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	if mediaType == mediaTypeDockerLayer {
		if err := diffID.Validate(); err != nil {
			return ocispec.Descriptor{}, &Error{Code: CodeNotAnImage, Member: name, Found: "diff ID " + quote(diffID.String()), Err: err}
		}
		return d.keep(mediaType, diffID, name, m), nil
	}
	id := blobDigest(name)
	if id == "" {
		id = data.Found // "" when the layer was not kept
	}
	if id == "" {
		d.hashed = true
		if id, err = digest.FromReader(cancelable{ctx, data.Reader()}); err != nil {
			return ocispec.Descriptor{}, fmt.Errorf("read %s: %w", quote(name), err)
		}
	}
	return d.keep(mediaType, id, name, m), nil
}

// layerType looks at the first bytes of a layer.
func layerType(name string, layer *Blob) (string, error) {
	head := make([]byte, min(headSize, layer.Size))
	if _, err := io.ReadFull(layer.Reader(), head); err != nil {
		return "", fmt.Errorf("read %s: %w", quote(name), err)
	}
	switch c, foreign := compressionOf(head); c {
	case None:
		return mediaTypeDockerLayer, nil
	case Gzip:
		return mediaTypeDockerLayerGzip, nil
	case Zstd:
		return mediaTypeDockerLayerZstd, nil
	default:
		e := unsupported(foreign)
		e.Member = name
		return "", e
	}
}

// member finds a file that manifest.json names.
func (d *docker) member(what, raw string) (string, member, error) {
	clean := cleanName(raw)
	if clean == "" {
		return "", member{}, &Error{Code: CodeNotAnImage, Member: manifestFile, Found: fmt.Sprintf("%s %s", what, quote(raw)), Expected: "the name of a member"}
	}
	name, m, err := d.t.resolve(clean)
	if err != nil {
		if err.Expected == "" {
			err.Expected = fmt.Sprintf("the %s that %s names", what, manifestFile)
		}
		return "", m, err
	}
	d.used[clean], d.used[name] = true, true
	return name, m, nil
}

func (d *docker) keep(mediaType string, id digest.Digest, name string, m member) ocispec.Descriptor {
	d.blobs[id] = d.t.at(id, name, m)
	return ocispec.Descriptor{MediaType: mediaType, Digest: id, Size: m.size}
}

func (d *docker) find(id digest.Digest) (*Blob, *Error) {
	if b, ok := d.blobs[id]; ok {
		return b, nil
	}
	return nil, &Error{Code: CodeMissingBlob, Found: "not in the archive"}
}
