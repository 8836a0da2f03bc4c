// Package bundle makes image archives for tests and demonstrations, good ones
// and bad ones: OCI archives, docker archives, layout directories. What it
// makes depends on its input alone, so two runs give the same bytes.
package bundle

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"runtime"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// AnnotationName is the annotation in which containerd and Docker write an
// image's full name.
const AnnotationName = "io.containerd.image.name"

// Image is an image to be written into an archive. Its zero value is one
// without a name and without layers, for the platform of the host.
type Image struct {
	Name     string           // full name: AnnotationName, or the RepoTag of a docker archive; "" is unnamed
	RefName  string           // org.opencontainers.image.ref.name; "" is none
	Platform ocispec.Platform // zero is the platform that the generator was built for
	Layers   []Layer
	Command  []string // the config's Entrypoint
	BadDiffs bool     // the config has wrong diff IDs

	// Variants make the image an index of these images, one for each
	// platform; its own platform, layers and command do not count then.
	Variants []Image
}

// Layer is one layer of an image.
type Layer struct {
	Files       []File
	Compression Compression // around the layer, in the OCI forms
}

// File is one regular file of a layer.
type File struct {
	Name string // without a leading slash
	Mode int64  // permission bits; 0 is 0644
	Data []byte
}

// Compression says how bytes are compressed.
type Compression string

// The compressions; the zero value is gzip, as in most layers there are.
const (
	Gzip Compression = ""
	Zstd Compression = "zstd"
	None Compression = "none"
)

// Good is the image of the good bundle: one gzip layer with one file of 6
// bytes, nothing that could be run.
func Good(name string) Image {
	return Image{Name: name, Layers: []Layer{{Files: []File{{Name: "hello.txt", Data: []byte("hello\n")}}}}}
}

// Built is what an image has become: its descriptors.
type Built struct {
	Target  ocispec.Descriptor   // the manifest, or the index when it has variants
	Config  ocispec.Descriptor   // empty for an index
	Layers  []ocispec.Descriptor // empty for an index
	DiffIDs []digest.Digest      // of the layers, uncompressed
}

// Build returns the descriptors of the image as the OCI forms have it.
func (i Image) Build() Built { return i.build(func(ocispec.Descriptor, []byte) {}) }

// build makes every blob of the image and gives it to put, layers first.
func (i Image) build(put func(ocispec.Descriptor, []byte)) Built {
	if len(i.Variants) > 0 {
		return Built{Target: i.buildIndex(put)}
	}
	b := Built{}
	for _, l := range i.Layers {
		plain := l.tar()
		data := Compress(plain, l.Compression)
		desc := describe(l.mediaType(), data)
		put(desc, data)
		b.Layers = append(b.Layers, desc)
		if i.BadDiffs {
			plain = append(plain, 0)
		}
		b.DiffIDs = append(b.DiffIDs, digest.FromBytes(plain))
	}
	config := i.config(b.DiffIDs)
	b.Config = describe(ocispec.MediaTypeImageConfig, config)
	put(b.Config, config)

	manifest := encode(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: ocispec.MediaTypeImageManifest,
		Config:    b.Config,
		Layers:    b.Layers,
	})
	b.Target = describe(ocispec.MediaTypeImageManifest, manifest)
	put(b.Target, manifest)
	platform := i.platform()
	b.Target.Platform = &platform
	return b
}

func (i Image) buildIndex(put func(ocispec.Descriptor, []byte)) ocispec.Descriptor {
	index := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex}
	for _, v := range i.Variants {
		index.Manifests = append(index.Manifests, v.build(put).Target)
	}
	data := encode(index)
	desc := describe(ocispec.MediaTypeImageIndex, data)
	put(desc, data)
	return desc
}

func (i Image) platform() ocispec.Platform {
	if i.Platform.OS == "" {
		return ocispec.Platform{OS: "linux", Architecture: runtime.GOARCH}
	}
	return i.Platform
}

func (i Image) config(diffIDs []digest.Digest) []byte {
	epoch := time.Unix(0, 0).UTC()
	return encode(ocispec.Image{
		Created:  &epoch,
		Platform: i.platform(),
		Config: ocispec.ImageConfig{
			Env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
			Entrypoint: i.Command,
		},
		RootFS: ocispec.RootFS{Type: "layers", DiffIDs: diffIDs},
	})
}

// annotated is the image's entry in an index.json.
func (i Image) annotated(desc ocispec.Descriptor) ocispec.Descriptor {
	desc.Annotations = map[string]string{}
	if i.Name != "" {
		desc.Annotations[AnnotationName] = i.Name
	}
	if i.RefName != "" {
		desc.Annotations[ocispec.AnnotationRefName] = i.RefName
	}
	return desc
}

func (l Layer) tar() []byte {
	var t Tar
	for _, f := range l.Files {
		t = append(t, Entry{Header: tar.Header{Typeflag: tar.TypeReg, Name: f.Name, Mode: f.mode()}, Data: f.Data})
	}
	return t.Bytes()
}

func (f File) mode() int64 {
	if f.Mode == 0 {
		return 0o644
	}
	return f.Mode
}

func (l Layer) mediaType() string {
	switch l.Compression {
	case Zstd:
		return ocispec.MediaTypeImageLayerZstd
	case None:
		return ocispec.MediaTypeImageLayer
	default:
		return ocispec.MediaTypeImageLayerGzip
	}
}

// Compress compresses data; equal data gives equal bytes.
func Compress(data []byte, c Compression) []byte {
	switch c {
	case None:
		return data
	case Zstd:
		w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
		if err != nil {
			panic(err) // the options are constants
		}
		return w.EncodeAll(data, nil)
	default:
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = w.Write(data) // a bytes.Buffer never fails
		_ = w.Close()
		return b.Bytes()
	}
}

func describe(mediaType string, data []byte) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
}

// encode is json.Marshal for types that always can be.
func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}
