package main

import (
	"archive/tar"
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// maker makes images out of files of the machine. Its blobs lie in one directory, named by digest.
type maker struct {
	pool  string
	files []source // in the order in which they are taken
	next  int      // index of the file that is taken next
}

// source is a file of the machine.
type source struct {
	path string
	size int64 // bytes
}

// image is one image whose blobs are in the pool.
type image struct {
	name     string
	layers   []layer
	config   ocispec.Descriptor
	manifest ocispec.Descriptor
}

// layer is a gzip layer in the pool.
type layer struct {
	desc   ocispec.Descriptor
	diffID digest.Digest
}

// maxFile leaves out files that would make a layer by themselves, in bytes.
const maxFile = 16 * mib

// newMaker looks for the regular files below root. They are taken in the order of a hash of their paths, so that every
// layer is a mixture of programs, libraries and text.
func newMaker(root, pool string) (*maker, error) {
	m := &maker{pool: pool}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrPermission) {
			return nil
		}
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if err == nil && info.Size() > 0 && info.Size() <= maxFile {
			m.files = append(m.files, source{path, info.Size()})
		}
		return err
	})
	if err == nil && len(m.files) == 0 {
		err = fmt.Errorf("find files in %q: there is none", root)
	}
	slices.SortFunc(m.files, func(a, b source) int {
		return cmp.Or(cmp.Compare(pathHash(a.path), pathHash(b.path)), cmp.Compare(a.path, b.path))
	})
	return m, err
}

func pathHash(path string) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, path) // a hash never fails
	return h.Sum64()
}

// images makes the single image, the many that share their base, and the one of them that changes.
func (m *maker) images(ctx context.Context, p parameters) (single image, many []image, changed image, err error) {
	layers, err := m.layers(ctx, p.Single...)
	if err != nil {
		return single, nil, changed, err
	}
	if single, err = m.image("registry.example/bench/single:1", layers...); err != nil {
		return single, nil, changed, err
	}
	base, err := m.layers(ctx, p.Base...)
	if err != nil {
		return single, nil, changed, err
	}
	for n := range p.Images {
		i, err := m.onBase(ctx, fmt.Sprintf("registry.example/bench/image-%02d:1", n), base, p.Top)
		if err != nil {
			return single, nil, changed, err
		}
		many = append(many, i)
	}
	changed, err = m.onBase(ctx, many[p.Images/3].name, base, p.Top)
	return single, many, changed, err
}

// onBase makes an image of the base layers and one of its own.
func (m *maker) onBase(ctx context.Context, name string, base []layer, top int64) (image, error) {
	own, err := m.layers(ctx, top)
	if err != nil {
		return image{}, err
	}
	return m.image(name, slices.Concat(base, own)...)
}

// layers makes layers of these compressed sizes, in bytes.
func (m *maker) layers(ctx context.Context, sizes ...int64) ([]layer, error) {
	var layers []layer
	for _, size := range sizes {
		l, err := m.layer(ctx, size)
		if err != nil {
			return nil, err
		}
		layers = append(layers, l)
	}
	return layers, nil
}

// layer takes files until their compressed tar is of the size.
func (m *maker) layer(ctx context.Context, size int64) (layer, error) {
	f, err := os.CreateTemp(m.pool, "layer-")
	if err != nil {
		return layer{}, err
	}
	defer f.Close()
	buffered := bufio.NewWriterSize(f, mib)
	packed, plain := &measured{w: buffered, digester: digest.Canonical.Digester()}, &measured{digester: digest.Canonical.Digester()}
	zip := gzip.NewWriter(packed)
	plain.w = zip
	out := layerWriter{Writer: tar.NewWriter(plain), dirs: map[string]bool{}}
	for packed.size < size {
		if err := ctx.Err(); err != nil {
			return layer{}, err
		}
		path, err := m.take(size / 16)
		if err == nil {
			err = out.add(path)
		}
		if err != nil {
			return layer{}, err
		}
	}
	for _, finish := range []func() error{out.Close, zip.Close, buffered.Flush} {
		if err := finish(); err != nil {
			return layer{}, err
		}
	}
	desc := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayerGzip, Digest: packed.digester.Digest(), Size: packed.size}
	return layer{desc: desc, diffID: plain.digester.Digest()}, os.Rename(f.Name(), m.blob(desc.Digest))
}

// take returns the next file of at most limit bytes, so that no file makes a layer much larger than asked for. When all
// have been taken, it begins again.
func (m *maker) take(limit int64) (string, error) {
	for range m.files {
		f := m.files[m.next]
		m.next = (m.next + 1) % len(m.files)
		if f.size <= limit {
			return f.path, nil
		}
	}
	return "", fmt.Errorf("take file of at most %d bytes: there is none among %d", limit, len(m.files))
}

// measured counts and hashes what is written through it.
type measured struct {
	w        io.Writer
	digester digest.Digester
	size     int64
}

func (m *measured) Write(p []byte) (int, error) {
	n, err := m.w.Write(p)
	m.size += int64(n)
	_, _ = m.digester.Hash().Write(p[:n]) // a hash never fails
	return n, err
}

// layerWriter writes a layer as an image builder does: directories before what is in them, all owned by root. Times are
// constant.
type layerWriter struct {
	*tar.Writer
	dirs map[string]bool
}

func (t layerWriter) add(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	inside := strings.TrimPrefix(filepath.ToSlash(name), "/")
	if err := t.directories(path.Dir(inside)); err != nil {
		return err
	}
	header := tar.Header{Typeflag: tar.TypeReg, Name: inside, Mode: int64(info.Mode().Perm()), Size: info.Size(), ModTime: time.Unix(0, 0)}
	if err := t.WriteHeader(&header); err != nil {
		return err
	}
	_, err = io.Copy(t.Writer, f)
	return err
}

func (t layerWriter) directories(dir string) error {
	if dir == "." || t.dirs[dir] {
		return nil
	}
	t.dirs[dir] = true
	if err := t.directories(path.Dir(dir)); err != nil {
		return err
	}
	return t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755, ModTime: time.Unix(0, 0)})
}

// image makes config and manifest of an image for this machine's platform.
func (m *maker) image(name string, layers ...layer) (image, error) {
	i := image{name: name, layers: layers}
	platform := ocispec.Platform{OS: "linux", Architecture: runtime.GOARCH}
	epoch := time.Unix(0, 0).UTC()
	config := ocispec.Image{Created: &epoch, Platform: platform, RootFS: ocispec.RootFS{Type: "layers"}}
	manifest := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest}
	for _, l := range layers {
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, l.diffID)
		manifest.Layers = append(manifest.Layers, l.desc)
	}
	var err error
	if i.config, err = m.document(ocispec.MediaTypeImageConfig, config); err != nil {
		return i, err
	}
	manifest.Config = i.config
	i.manifest, err = m.document(ocispec.MediaTypeImageManifest, manifest)
	i.manifest.Platform = &platform
	return i, err
}

// document puts a JSON document into the pool.
func (m *maker) document(mediaType string, v any) (ocispec.Descriptor, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	desc := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
	return desc, os.WriteFile(m.blob(desc.Digest), data, 0o644)
}

// blob is a blob's path in the pool.
func (m *maker) blob(d digest.Digest) string { return filepath.Join(m.pool, d.Encoded()) }
