package archive

import (
	"bytes"
	"context"
	_ "crypto/sha512" // digests of that algorithm are valid ones
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// annotationName is where containerd, Docker and buildkit write a full name.
const annotationName = "io.containerd.image.name"

// maxNesting bounds indexes in indexes.
const maxNesting = 8

// readOCI reads the index of an OCI archive.
func (a *Archive) readOCI(ctx context.Context, t *table) error {
	a.Format = OCIArchive
	if err := t.ensure(ctx, []string{ocispec.ImageLayoutFile, ocispec.ImageIndexFile}); err != nil {
		return err
	}
	if err := a.readLayout(t.document); err != nil {
		return err
	}
	a.find, a.list = t.blob, t.blobs
	a.ignore(t, func(name string) bool {
		return isBlobName(name) || name == ocispec.ImageLayoutFile || name == ocispec.ImageIndexFile || name == manifestFile || name == "repositories"
	})
	if t.left > 0 {
		return a.reach(ctx, t)
	}
	return nil
}

// readLayout reads the two documents of an OCI layout.
func (a *Archive) readLayout(read func(name string) ([]byte, error)) error {
	data, err := read(ocispec.ImageLayoutFile)
	if err != nil {
		return err
	}
	if err := checkLayout(data); err != nil {
		return err
	}
	if data, err = read(ocispec.ImageIndexFile); err != nil {
		return err
	}
	a.Images, err = parseIndex(data)
	return err
}

func checkLayout(data []byte) error {
	var layout ocispec.ImageLayout
	if err := json.Unmarshal(data, &layout); err != nil {
		return notJSON(ocispec.ImageLayoutFile, data, err)
	}
	if layout.Version != ocispec.ImageLayoutVersion {
		return &Error{Code: CodeNotAnImage, Member: ocispec.ImageLayoutFile, Found: "layout version " + quote(layout.Version), Expected: ocispec.ImageLayoutVersion}
	}
	return nil
}

// parseIndex reads an index.json.
func parseIndex(data []byte) ([]Image, error) {
	var index ocispec.Index
	if err := json.Unmarshal(data, &index); err != nil {
		return nil, notJSON(ocispec.ImageIndexFile, data, err)
	}
	if len(index.Manifests) == 0 {
		return nil, &Error{
			Code: CodeNotAnImage, Member: ocispec.ImageIndexFile, Found: "it lists no image", Expected: "at least one manifest",
			Advice: "the program that wrote it found nothing to save: look at its messages",
		}
	}
	images := make([]Image, len(index.Manifests))
	for i, desc := range index.Manifests {
		images[i] = Image{Target: desc}
		images[i].Name, images[i].TagOnly = nameOf(desc.Annotations)
		if err := checkDescriptor(desc); err != nil {
			images[i].Err = &Error{Code: CodeNotAnImage, Member: ocispec.ImageIndexFile, Found: fmt.Sprintf("manifest %d cannot be one", i+1), Err: err}
		}
	}
	return images, nil
}

// nameOf takes an image's name from its entry in an index.json, and says
// whether it is only a tag. What the image specification calls ref.name may be
// a full name, a name without a registry or, as most programs have it, a tag.
func nameOf(annotations map[string]string) (name string, tagOnly bool) {
	if name := annotations[annotationName]; name != "" {
		return name, false
	}
	name = annotations[ocispec.AnnotationRefName]
	return name, name != "" && !strings.ContainsAny(name, "/:@")
}

func checkDescriptor(desc ocispec.Descriptor) error {
	if err := desc.Digest.Validate(); err != nil {
		return fmt.Errorf("digest %s: %w", quote(desc.Digest.String()), err)
	}
	if desc.Size < 0 {
		return fmt.Errorf("size %d is negative", desc.Size)
	}
	return nil
}

func notJSON(member string, data []byte, err error) *Error {
	e := &Error{Code: CodeNotAnImage, Member: member, Expected: "JSON of an image", Err: err}
	head := data[:min(len(data), headSize)]
	e.Found, e.Advice = describe(head)
	switch {
	case len(data) == 0:
		e.Found, e.Err = "it is empty", nil
	case strings.HasPrefix(e.Found, "JSON"):
		e.Found = "it is not the JSON that it should be"
	case e.Found == "":
		e.Found = "it is not JSON"
	}
	return e
}

// blobName is the name of a blob in an OCI layout, "" for a bad digest.
func blobName(d digest.Digest) string {
	if d.Validate() != nil {
		return ""
	}
	return "blobs/" + d.Algorithm().String() + "/" + d.Encoded()
}

func isBlobName(name string) bool { return blobDigest(name) != "" }

// blobDigest is the digest that a blob's name claims, "" for another member.
func blobDigest(name string) digest.Digest {
	rest, ok := strings.CutPrefix(name, "blobs/")
	algorithm, encoded, _ := strings.Cut(rest, "/")
	d := digest.Digest(algorithm + ":" + encoded)
	if !ok || d.Validate() != nil {
		return ""
	}
	return d
}

// blob finds a blob of an OCI archive.
func (t *table) blob(d digest.Digest) (*Blob, *Error) {
	name := blobName(d)
	if name == "" {
		return nil, &Error{Code: CodeMissingBlob, Found: "no digest: " + quote(d.String())}
	}
	member, m, err := t.resolve(name)
	if err != nil {
		return nil, err
	}
	return t.at(d, member, m), nil
}

func (t *table) at(d digest.Digest, name string, m member) *Blob {
	b := &Blob{Digest: d, Size: m.size, Member: name}
	switch {
	case m.piece == nil:
		b.ReaderAt, b.offset = io.NewSectionReader(t.r, m.offset, m.size), m.offset
	default:
		b.ReaderAt = bytes.NewReader(m.piece.data)
		b.Kept, b.Found = m.piece.finish != nil, m.piece.found
	}
	return b
}

// blobs lists the blobs of an OCI archive.
func (t *table) blobs() []*Blob {
	var all []*Blob
	for name := range t.members {
		if d := blobDigest(name); d != "" {
			if b, err := t.blob(d); err == nil {
				all = append(all, b)
			}
		}
	}
	return all
}

// ignore lists the members that do not belong.
func (a *Archive) ignore(t *table, belongs func(name string) bool) {
	a.Ignored, a.IgnoredCount = t.survey.ignored, t.survey.dropped
	for _, name := range slices.Sorted(maps.Keys(t.members)) {
		if belongs(name) {
			continue
		}
		a.IgnoredCount++
		if len(a.Ignored) < maxIgnored {
			a.Ignored = append(a.Ignored, name)
		}
	}
	a.IgnoredCount += t.left
}

// reach goes from the index to every blob that it needs, a level at a time, so
// that those which had no room in the table are found by a walk for each level.
func (a *Archive) reach(ctx context.Context, t *table) error {
	var level []ocispec.Descriptor
	for _, image := range a.Images {
		level = append(level, image.Target)
	}
	for depth := 0; len(level) > 0 && depth < maxNesting; depth++ {
		var names []string
		for _, desc := range level {
			if name := blobName(desc.Digest); name != "" {
				names = append(names, name)
			}
		}
		if err := t.ensure(ctx, names); err != nil {
			return err
		}
		level = t.children(level)
	}
	return nil
}

// children are what the manifests and indexes among level name. One that
// cannot be read has none: the caller finds out when it wants it.
func (t *table) children(level []ocispec.Descriptor) []ocispec.Descriptor {
	var next []ocispec.Descriptor
	seen := map[digest.Digest]bool{}
	for _, desc := range level {
		if seen[desc.Digest] || !isManifest(desc.MediaType) {
			continue
		}
		seen[desc.Digest] = true
		data, err := t.document(blobName(desc.Digest))
		if err != nil {
			continue
		}
		var parent struct {
			Manifests, Layers []ocispec.Descriptor
			Config            ocispec.Descriptor
		}
		if json.Unmarshal(data, &parent) == nil {
			next = slices.Concat(next, parent.Manifests, parent.Layers, []ocispec.Descriptor{parent.Config})
		}
	}
	return next
}

func isManifest(mediaType string) bool {
	switch mediaType {
	case ocispec.MediaTypeImageIndex, ocispec.MediaTypeImageManifest, mediaTypeDockerList, mediaTypeDockerManifest:
		return true
	}
	return false
}
