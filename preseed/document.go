package preseed

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"seedbed/preseed/archive"
)

// Bounds on what a bundle may ask for. Registries refuse manifests over 4 MiB, and containerd
// walks at most 10,000 references.
const (
	maxDocument  = 8 << 20  // bytes of a manifest, index or config
	maxManifests = 10_000   // manifests of one image
	maxDepth     = 16       // indexes within indexes
	smallBlob    = 64 << 10 // bytes up to which a blob is hashed wherever it is met
	comparedBlob = 8 << 20  // bytes up to which a blob that is written is hashed in the other bundles as well
)

// manifestDocument is an index or a manifest: whichever of the two the fields say.
type manifestDocument struct {
	MediaType    string               `json:"mediaType"`
	ArtifactType string               `json:"artifactType"`
	Manifests    []ocispec.Descriptor `json:"manifests"`
	Config       ocispec.Descriptor   `json:"config"`
	Layers       []ocispec.Descriptor `json:"layers"`
}

// artifact returns what kind of thing a manifest holds that is no image, "" for an image.
func (m *manifestDocument) artifact() string {
	switch {
	case m.Config.MediaType == "", images.IsConfigType(m.Config.MediaType):
		return ""
	case m.ArtifactType != "":
		return m.ArtifactType
	}
	return m.Config.MediaType
}

// parseDocument reads an index or a manifest and settles desc's media type. A document that says
// another type than its descriptor is refused, as containerd refuses it when the image is run.
func parseDocument(a *archive.Archive, desc *ocispec.Descriptor, data []byte) (*manifestDocument, error) {
	var doc manifestDocument
	bad := func(found string, err error) *Error {
		return &Error{Code: archive.CodeNotAnImage, Member: memberOf(a, desc.Digest), Found: found, Err: err}
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		return nil, bad("no JSON of a manifest or index", err)
	}
	if desc.MediaType == "" {
		desc.MediaType = doc.mediaType()
	}
	switch {
	case !images.IsIndexType(desc.MediaType) && !images.IsManifestType(desc.MediaType):
		return nil, bad("media type "+quote(desc.MediaType)+", which is neither a manifest nor an index", nil)
	case doc.MediaType != "" && doc.MediaType != desc.MediaType:
		return nil, bad(fmt.Sprintf("media type %q where the descriptor says %q", doc.MediaType, desc.MediaType), nil)
	case images.IsManifestType(desc.MediaType) && doc.Manifests != nil:
		return nil, bad("a manifest that is an index", nil)
	case images.IsManifestType(desc.MediaType) && doc.Config.Digest == "":
		return nil, bad("a manifest without a config", nil)
	case images.IsIndexType(desc.MediaType) && (doc.Layers != nil || doc.Config.Digest != ""):
		return nil, bad("an index that is a manifest", nil)
	}
	return &doc, doc.validate(bad)
}

func (m *manifestDocument) mediaType() string {
	switch {
	case m.MediaType != "":
		return m.MediaType
	case m.Manifests != nil:
		return ocispec.MediaTypeImageIndex
	}
	return ocispec.MediaTypeImageManifest
}

func (m *manifestDocument) validate(bad func(string, error) *Error) error {
	for _, list := range [][]ocispec.Descriptor{m.Manifests, m.Layers} {
		for _, d := range list {
			if err := d.Digest.Validate(); err != nil || d.Size < 0 {
				return bad(fmt.Sprintf("descriptor with digest %q and size %d", d.Digest, d.Size), err)
			}
		}
	}
	if m.Config.Digest == "" {
		return nil
	}
	if err := m.Config.Digest.Validate(); err != nil {
		return bad(fmt.Sprintf("config with digest %q", m.Config.Digest), err)
	}
	return nil
}

// readConfig reads an image's config, of which only the platform and the diff IDs matter here.
func readConfig(a *archive.Archive, desc ocispec.Descriptor) (*ocispec.Image, error) {
	data, err := readDocument(a, desc)
	if err != nil {
		return nil, err
	}
	var config ocispec.Image
	if err := json.Unmarshal(data, &config); err != nil {
		return nil, &Error{Code: archive.CodeNotAnImage, Member: memberOf(a, desc.Digest), Found: "no JSON of an image config", Err: err}
	}
	return &config, nil
}

// readDocument reads a small blob whole and checks it.
func readDocument(a *archive.Archive, desc ocispec.Descriptor) ([]byte, error) {
	if err := desc.Digest.Validate(); err != nil {
		return nil, &Error{Code: archive.CodeNotAnImage, Found: "descriptor with digest " + quote(desc.Digest.String()), Err: err}
	}
	b, err := blobOf(a, desc)
	if err != nil {
		return nil, err
	}
	if b.Size > maxDocument {
		return nil, &Error{
			Code: archive.CodeNotAnImage, Member: b.Member, Found: fmt.Sprintf("a document of %d bytes", b.Size),
			Expected: fmt.Sprintf("at most %d", maxDocument),
		}
	}
	if b.Kept {
		return nil, &Error{Code: archive.CodeNotAnImage, Member: b.Member, Found: "no JSON of a manifest, index or config"}
	}
	data := make([]byte, b.Size)
	if _, err := io.ReadFull(b.Reader(), data); err != nil {
		return nil, readError(b, err)
	}
	if found := desc.Digest.Algorithm().FromBytes(data); found != desc.Digest {
		return nil, mismatch(b, desc.Digest, found)
	}
	return data, nil
}

// blobOf finds a blob of the size that its descriptor says.
func blobOf(a *archive.Archive, desc ocispec.Descriptor) (*archive.Blob, error) {
	b, ok := a.Blob(desc.Digest)
	if !ok {
		return nil, missing(a, desc.Digest)
	}
	if b.Size != desc.Size {
		return nil, &Error{
			Code: archive.CodeDigestMismatch, Member: b.Member, Found: fmt.Sprintf("%d bytes", b.Size),
			Expected: fmt.Sprintf("%d bytes", desc.Size), Advice: damagedAdvice,
		}
	}
	return b, nil
}

// missing says why an archive has no blob, with advice in any case.
func missing(a *archive.Archive, d digest.Digest) *Error {
	e := *a.Missing(d)
	e.Advice = cmp.Or(e.Advice, "the archive is incomplete: make or fetch it again, with all layers of the platform")
	return &e
}

const damagedAdvice = "the archive is damaged or was made wrong: make or fetch it again"

// verifyBlob hashes what the archive holds under the name of a digest.
func verifyBlob(b *archive.Blob, want digest.Digest) error {
	if !want.Algorithm().Available() {
		return &Error{Code: archive.CodeNotAnImage, Member: b.Member, Found: "digest algorithm " + quote(string(want.Algorithm()))}
	}
	if b.Kept {
		if b.Found != want {
			return mismatch(b, want, b.Found)
		}
		return nil
	}
	digester := want.Algorithm().Digester()
	n, err := io.CopyBuffer(digester.Hash(), b.Reader(), make([]byte, min(messageSize, b.Size+1)))
	if err == nil && n < b.Size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return readError(b, err)
	}
	if found := digester.Digest(); found != want {
		return mismatch(b, want, found)
	}
	return nil
}

func mismatch(b *archive.Blob, want, found digest.Digest) *Error {
	return &Error{Code: archive.CodeDigestMismatch, Member: b.Member, Expected: want.String(), Found: "content of digest " + found.String(), Advice: damagedAdvice}
}

func readError(b *archive.Blob, err error) *Error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return &Error{
			Code: archive.CodeChangedWhileReading, Member: b.Member, Found: "fewer bytes than when the archive was opened",
			Advice: "import the archive when it is written to its end",
		}
	}
	e := *errorOf(err)
	e.Member = cmp.Or(e.Member, b.Member)
	return &e
}

func memberOf(a *archive.Archive, d digest.Digest) string {
	if b, ok := a.Blob(d); ok {
		return b.Member
	}
	return ""
}
