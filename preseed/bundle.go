package preseed

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"seedbed/preseed/archive"
)

// bundle is one archive on its way through a run.
type bundle struct {
	found
	report  *BundleReport
	archive *archive.Archive
	images  []*image
	err     *Error        // what is wrong with the whole bundle
	took    time.Duration // spent on it, by all workers
	settled bool          // its outcome is final
	ledger  digest.Digest // of the blob that says what the archive holds; "" when there is none

	againMu sync.Mutex
	again   *archive.Archive // see readAgain
}

// image is one name of a bundle.
type image struct {
	bundle  *bundle
	name    string // "" when there is none that can be used
	report  *ImageReport
	verdict *verdict // nil when the bundle cannot give the image
	err     *Error
	record  record // what the store has under the name, and what it should have
}

// fail records the first thing that goes wrong with an image.
func (i *image) fail(err error) {
	if i.err == nil {
		i.err = errorOf(err)
	}
}

// wanted reports whether the image can and has to be in the store.
func (i *image) wanted() bool {
	return i.err == nil && i.bundle.err == nil && i.verdict != nil && i.verdict.artifact == "" && i.report.Status == ""
}

// fail records the first thing that goes wrong with the whole bundle.
func (b *bundle) fail(err error) {
	if b.err == nil {
		b.err = errorOf(err)
	}
}

// open reads the bundle's index and judges every image. What is wrong is left in b and its images.
func (b *bundle) open(ctx context.Context, o Options, how archive.Options, whole bool) {
	begin := time.Now()
	defer func() { b.took += time.Since(begin) }()
	a, err := b.openArchive(ctx, how)
	if err != nil {
		b.fail(err)
		return
	}
	b.archive = a
	b.report.Format, b.report.Compression, b.report.Bytes.Archive = a.Format, a.Compression, a.Size
	b.judge(o, whole)
	b.nameImages(o)
}

func (b *bundle) openArchive(ctx context.Context, how archive.Options) (*archive.Archive, error) {
	if b.reader != nil {
		return how.OpenStream(ctx, b.reader)
	}
	return how.Open(ctx, b.path)
}

// readAgain returns a blob that can be read where the archive's own cannot: the store had it when
// the archive was read, and has lost it. The archive is read again, and spooled.
func (b *bundle) readAgain(ctx context.Context, d digest.Digest) (*archive.Blob, error) {
	b.againMu.Lock()
	defer b.againMu.Unlock()
	if b.reader != nil {
		return nil, &Error{
			Code: archive.CodeMissingBlob, Expected: d.String(), Found: "lost by the store, after the stream that it came in was read",
			Advice: "import it again",
		}
	}
	if b.again == nil {
		a, err := archive.Open(ctx, b.path)
		if err != nil {
			return nil, err
		}
		b.again = a
	}
	blob, ok := b.again.Blob(d)
	if !ok {
		return nil, missing(b.again, d)
	}
	return blob, nil
}

// judge makes an image of each name, and a verdict of each target.
func (b *bundle) judge(o Options, whole bool) {
	matcher, want, err := o.matcher()
	if err != nil {
		b.fail(err)
		return
	}
	j := &judge{archive: b.archive, platform: matcher, want: want, all: o.AllPlatforms, whole: whole, hashed: map[digest.Digest]bool{}}
	for _, raw := range b.archive.Images {
		i := &image{bundle: b, report: &ImageReport{Name: raw.Name, Digest: raw.Target.Digest}}
		b.images = append(b.images, i)
		b.report.Images = append(b.report.Images, i.report)
		if raw.Err != nil {
			i.fail(raw.Err)
			continue
		}
		v, err := j.judgeImage(raw.Target)
		if err != nil {
			i.fail(err)
			continue
		}
		i.verdict = v
		i.report.Platforms = v.platforms
		if v.artifact != "" {
			i.report.Status, i.report.Reason = StatusArtifact, "holds "+v.artifact+", which is no image to run"
		}
	}
}

// nameImages gives each image the name of its record.
func (b *bundle) nameImages(o Options) {
	var unnamed []*image
	for n, i := range b.images {
		raw := b.archive.Images[n]
		if i.report.Status == StatusArtifact || raw.Err != nil {
			continue
		}
		if raw.Name == "" || raw.TagOnly {
			unnamed = append(unnamed, i)
			continue
		}
		if err := i.setName(raw.Name, b.archive.Format); err != nil {
			i.fail(err)
		}
	}
	for _, i := range unnamed {
		i.nameless(o.Name, len(unnamed))
	}
}

func (i *image) setName(raw string, format archive.Format) (err error) {
	if format == archive.DockerArchive {
		i.name, err = dockerName(raw)
	} else {
		i.name, i.report.Reason, err = ociName(raw)
	}
	if err == nil {
		i.report.Name = i.name
	}
	return err
}

// nameless gives an image the name of the command line, or refuses it: an image without a record
// would be collected, so an import of it would only seem to succeed.
func (i *image) nameless(name string, count int) {
	switch {
	case name == "" && i.report.Name != "":
		i.fail(&Error{
			Code: CodeNoName, Found: "the name " + quote(i.report.Name) + ", which is only a tag", Expected: "HOST/REPOSITORY:TAG",
			Advice: "name it with --name HOST/REPOSITORY:" + i.report.Name,
		})
	case name == "":
		i.fail(&Error{Code: CodeNoName, Found: nameCount(count), Advice: "name it with --name, or set org.opencontainers.image.ref.name (RepoTags in a docker archive) when the bundle is made"})
	case count > 1:
		i.fail(&Error{Code: CodeNoName, Found: nameCount(count), Advice: "--name can name only one: import a bundle for each"})
	default:
		if err := i.setName(name, archive.DockerArchive); err != nil {
			i.fail(err)
		}
	}
}

func nameCount(count int) string {
	if count == 1 {
		return "1 image without a name"
	}
	return fmt.Sprintf("%d images without a name", count)
}

// close lets go of the archive and counts what was read of it.
func (b *bundle) close() {
	if b.archive == nil {
		return
	}
	b.report.Bytes.Read = b.archive.BytesRead()
	b.archive.Close()
	b.archive = nil
	if b.again != nil {
		b.report.Bytes.Read += b.again.BytesRead()
		b.again.Close()
		b.again = nil
	}
}

// settle turns what happened to the images into the bundle's outcome.
func (b *bundle) settle() {
	b.report.Seconds = seconds(b.took)
	if b.report.Status != "" {
		return
	}
	if b.skip != "" {
		b.report.Status, b.report.Reason = StatusSkipped, b.skip
		return
	}
	first := b.err
	for _, i := range b.images {
		i.settle()
		if first == nil {
			first = i.err
		}
	}
	if first != nil {
		b.report.Status, b.report.Error = StatusFailed, reportError(first)
		b.report.Reason = first.Error()
		return
	}
	b.report.Status = worst(b.report.Images)
	b.report.Bytes.Reused = max(0, b.needed()-b.report.Bytes.Written) // a stream's unneeded blobs are written too
	if b.report.Status == StatusSkipped {
		b.report.Reason = "holds no image: " + b.report.Images[0].Reason
	}
}

// needed sums up the blobs of the bundle's images, each counted once.
func (b *bundle) needed() int64 {
	sizes, sum := map[digest.Digest]int64{}, int64(0)
	for _, i := range b.images {
		if i.verdict == nil || i.report.Status != StatusImported && i.report.Status != StatusUnchanged {
			continue
		}
		for _, n := range i.verdict.needs {
			sizes[n.desc.Digest] = n.desc.Size
		}
	}
	for _, size := range sizes {
		sum += size
	}
	return sum
}

func (i *image) settle() {
	switch {
	case i.err != nil:
		i.report.Status = StatusFailed
		i.report.Reason = i.err.Error()
	case i.bundle.err != nil && i.report.Status != StatusArtifact:
		i.report.Status = StatusFailed
		i.report.Reason = i.bundle.err.Error()
	}
}

// worst sums up images of which none failed.
func worst(images []*ImageReport) Status {
	sum := StatusSkipped
	for _, order := range []Status{StatusOK, StatusUnchanged, StatusImported, StatusIncomplete} {
		for _, i := range images {
			if i.Status == order {
				sum = order
			}
		}
	}
	return sum
}

// warn appends to an image's reason.
func (i *image) warn(text string) {
	i.report.Reason = strings.TrimPrefix(i.report.Reason+"; "+text, "; ")
}
