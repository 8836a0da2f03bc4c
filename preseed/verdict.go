package preseed

import (
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"seedbed/preseed/archive"
)

// verdict is what an image of a bundle needs to run, once it is known that the bundle has it.
type verdict struct {
	target    ocispec.Descriptor // what the image record names
	platforms []string
	needs     []need  // every blob once, children before what refers to them
	rootfs    *rootfs // what an unpack makes; nil when nothing of it runs on the platform
	artifact  string  // the media type of what is no image; nothing is needed then
}

// need is a blob that must be in the store before the image is named.
type need struct {
	desc   ocispec.Descriptor
	labels map[string]string // for the garbage collector: what this blob keeps alive
}

// judge decides what the image target of an archive needs.
type judge struct {
	archive  *archive.Archive
	platform platforms.MatchComparer
	want     string // the platform in words
	all      bool   // every platform is needed
	whole    bool   // hash the layers as well, however large
	hashed   map[digest.Digest]bool
	verdict  verdict
	seen     map[digest.Digest]bool
}

// leaf is a manifest of an image, with the indexes above it.
type leaf struct {
	desc     ocispec.Descriptor
	manifest *manifestDocument
	platform *ocispec.Platform // nil when nothing says it
	above    []ocispec.Descriptor
	absent   *Error // why the manifest cannot be read
}

// attestation reports whether the leaf says something about an image and is none itself.
// Source: BuildKit, docs/attestations/attestation-storage.md.
func (l *leaf) attestation() bool {
	return l.desc.Annotations["vnd.docker.reference.type"] != "" ||
		l.platform != nil && l.platform.OS == "unknown" && l.platform.Architecture == "unknown"
}

// judgeImage returns what target needs of a. The error is an [*Error]: a blob that is missing or
// damaged, no manifest for the platform, or a document that cannot be read.
func (j *judge) judgeImage(target ocispec.Descriptor) (*verdict, error) {
	j.verdict = verdict{target: target}
	j.seen = map[digest.Digest]bool{}
	leaves, err := j.leaves(&j.verdict.target)
	if err != nil {
		return nil, err
	}
	if artifact := onlyArtifacts(leaves); artifact != "" {
		return &verdict{target: j.verdict.target, artifact: artifact}, nil
	}
	chosen, err := j.choose(leaves)
	if err != nil {
		return nil, err
	}
	for _, l := range chosen {
		if err := j.needLeaf(l); err != nil {
			return nil, j.named(l, err)
		}
	}
	if err := j.needIndexes(chosen); err != nil {
		return nil, err
	}
	if j.verdict.rootfs, err = j.rootfsOf(leaves); err != nil {
		return nil, err
	}
	v := j.verdict
	return &v, nil
}

// choose returns the leaves that have to be complete: the best for the platform, or all.
func (j *judge) choose(leaves []*leaf) ([]*leaf, error) {
	if j.all {
		return leaves, nil
	}
	var able []*leaf
	for _, l := range leaves {
		if l.manifest != nil && l.manifest.artifact() != "" || l.attestation() {
			continue
		}
		if l.platform == nil && l.absent == nil || l.platform != nil && j.platform.Match(*l.platform) {
			able = append(able, l)
		}
	}
	if len(able) == 0 {
		return nil, j.wrongPlatform(leaves)
	}
	slices.SortStableFunc(able, func(a, b *leaf) int { return j.compare(a.platform, b.platform) })
	return able[:1], nil
}

// compare orders platforms as containerd's images.Manifest does: the better first, the unknown last.
func (j *judge) compare(a, b *ocispec.Platform) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil, j.platform.Less(*a, *b):
		return -1
	case j.platform.Less(*b, *a):
		return 1
	}
	return 0
}

func (j *judge) wrongPlatform(leaves []*leaf) *Error {
	var has []string
	for _, l := range leaves {
		if l.platform == nil && l.absent != nil {
			return l.absent
		}
		if l.platform != nil && !l.attestation() {
			has = append(has, platforms.Format(platforms.Normalize(*l.platform)))
		}
	}
	slices.Sort(has)
	found := "no manifest for " + j.want
	if len(has) > 0 {
		found += " (has " + strings.Join(slices.Compact(has), ", ") + ")"
	}
	return &Error{
		Code: CodeWrongPlatform, Found: found,
		Advice: "get the bundle for " + j.want + ", or name its own platform with --platform",
	}
}

// leaves flattens what target names into manifests, in the order of the indexes. target's media
// type is filled in where the bundle leaves it out.
func (j *judge) leaves(target *ocispec.Descriptor) ([]*leaf, error) {
	var all []*leaf
	err := j.walk(target, nil, &all)
	return all, err
}

func (j *judge) walk(desc *ocispec.Descriptor, above []ocispec.Descriptor, all *[]*leaf) error {
	if len(*all) >= maxManifests || len(above) >= maxDepth {
		return &Error{Code: archive.CodeNotAnImage, Found: fmt.Sprintf("more than %d manifests, or indexes nested more than %d deep", maxManifests, maxDepth)}
	}
	data, err := readDocument(j.archive, *desc)
	if err != nil {
		return j.unread(desc, above, all, err)
	}
	doc, err := parseDocument(j.archive, desc, data)
	if err != nil {
		return err
	}
	if !images.IsIndexType(desc.MediaType) {
		*all = append(*all, j.leafOf(*desc, doc, above))
		return nil
	}
	above = append(slices.Clip(above), *desc)
	for _, child := range doc.Manifests {
		if err := j.walk(&child, above, all); err != nil {
			return err
		}
	}
	return nil
}

// unread decides what a manifest means that the bundle does not hold, or holds damaged. Below an
// index it counts only if it is chosen.
func (j *judge) unread(desc *ocispec.Descriptor, above []ocispec.Descriptor, all *[]*leaf, err error) error {
	if len(above) == 0 {
		return err
	}
	*all = append(*all, &leaf{desc: *desc, platform: desc.Platform, above: above, absent: errorOf(err)})
	return nil
}

// leafOf takes the platform from the config where the descriptor has none.
func (j *judge) leafOf(desc ocispec.Descriptor, doc *manifestDocument, above []ocispec.Descriptor) *leaf {
	l := &leaf{desc: desc, manifest: doc, platform: desc.Platform, above: above}
	if l.platform == nil && doc.artifact() == "" {
		if config, err := readConfig(j.archive, doc.Config); err != nil {
			l.absent = errorOf(err)
		} else if config.OS != "" && config.Architecture != "" {
			l.platform = &config.Platform
		}
	}
	return l
}

// onlyArtifacts returns the media type of the first artifact when there is no image among them.
func onlyArtifacts(leaves []*leaf) string {
	first := ""
	for _, l := range leaves {
		if l.manifest == nil {
			return ""
		}
		artifact := l.manifest.artifact()
		if artifact == "" {
			return ""
		}
		if first == "" {
			first = artifact
		}
	}
	return first
}

// needLeaf adds the layers, the config and the manifest of l.
func (j *judge) needLeaf(l *leaf) error {
	if l.absent != nil {
		return l.absent
	}
	m := l.manifest
	if m.artifact() == "" && !l.attestation() {
		if err := j.runnable(m); err != nil {
			return err
		}
		if l.platform != nil {
			j.verdict.platforms = append(j.verdict.platforms, platforms.Format(platforms.Normalize(*l.platform)))
		}
	}
	children := append([]ocispec.Descriptor{m.Config}, m.Layers...)
	for _, child := range slices.Backward(children) {
		if err := j.need(child, nil); err != nil {
			return err
		}
	}
	return j.need(l.desc, children)
}

// runnable compares what the config says with the layers: an unpack would find the difference.
func (j *judge) runnable(m *manifestDocument) error {
	config, err := readConfig(j.archive, m.Config)
	if err != nil {
		return err
	}
	if have, want := len(m.Layers), len(config.RootFS.DiffIDs); have != want {
		return &Error{
			Code: archive.CodeNotAnImage, Member: memberOf(j.archive, m.Config.Digest),
			Found: fmt.Sprintf("%d diff IDs in the config", want), Expected: fmt.Sprintf("one for each of %d layers", have),
		}
	}
	return nil
}

// needIndexes adds the indexes above the chosen leaves, the inner ones first.
func (j *judge) needIndexes(chosen []*leaf) error {
	children := map[digest.Digest][]ocispec.Descriptor{}
	var order []ocispec.Descriptor
	for _, l := range chosen {
		below := l.desc
		for _, index := range slices.Backward(l.above) {
			if _, known := children[index.Digest]; !known {
				order = append(order, index)
			}
			if !slices.ContainsFunc(children[index.Digest], func(d ocispec.Descriptor) bool { return d.Digest == below.Digest }) {
				children[index.Digest] = append(children[index.Digest], below)
			}
			below = index
		}
	}
	for _, index := range order {
		if err := j.need(index, children[index.Digest]); err != nil {
			return err
		}
	}
	return nil
}

// need adds a blob once, if the archive has it with the right size.
func (j *judge) need(desc ocispec.Descriptor, children []ocispec.Descriptor) error {
	if j.seen[desc.Digest] {
		return nil
	}
	if err := j.present(desc); err != nil {
		return err
	}
	j.seen[desc.Digest] = true
	j.verdict.needs = append(j.verdict.needs, need{desc: desc, labels: gcLabels(children)})
	return nil
}

// present looks for a blob in the archive. Small ones, and all of them when the judge is to look
// at everything, are hashed as well; the digest of the others is checked where they are written.
func (j *judge) present(desc ocispec.Descriptor) error {
	b, err := blobOf(j.archive, desc)
	if err != nil {
		return err
	}
	if j.hashed[desc.Digest] || b.Size > smallBlob && !j.whole && !b.Kept {
		return nil
	}
	if err := verifyBlob(b, desc.Digest); err != nil {
		return err
	}
	j.hashed[desc.Digest] = true
	return nil
}

// named says in which platform's image an error is, where there are several.
func (j *judge) named(l *leaf, err error) error {
	if !j.all || l.platform == nil || len(l.above) == 0 {
		return err
	}
	e := *errorOf(err)
	e.Found = fmt.Sprintf("%s (%s, manifest %s)", e.Found, platforms.Format(*l.platform), l.desc.Digest)
	e.Advice = "leave out --all-platforms to import only what this host needs"
	return &e
}

// gcLabels returns the labels with which containerd's garbage collector finds children, made as
// images.SetChildrenLabels makes them.
func gcLabels(children []ocispec.Descriptor) map[string]string {
	if len(children) == 0 {
		return nil
	}
	labels, count := map[string]string{}, map[string]int{}
	for _, child := range children {
		for _, key := range images.ChildGCLabels(child) {
			index := count[key]
			count[key]++
			switch {
			case strings.HasSuffix(key, ".sha256."):
				key += child.Digest.Encoded()[:12]
			case index > 0 || strings.HasSuffix(key, "."):
				key = fmt.Sprintf("%s%d", key, index)
			}
			labels[key] = child.Digest.String()
		}
	}
	return labels
}
