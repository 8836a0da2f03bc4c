// Package preseed imports image bundles into containerd's store and says what happened to each.
//
// A bundle is one image archive (an OCI or docker archive, or an OCI layout directory) below a
// preseed directory whose sub-directories are containerd namespaces. The work is done in three
// steps: index (read what every bundle says it holds), decide (which blobs the platform needs, and
// which of them the store lacks) and copy (the missing blobs, each read once however many bundles
// hold it). The verdict comes before the name: an image record is written only when every blob
// that the image needs is committed under its digest and size, so the store never shows an image
// that cannot run.
//
// The store is either a running containerd ([Connect] and [NewStore]) or containerd's own store on
// disk without a daemon (package offline); [Import] knows no difference. [Check] needs no store.
package preseed

import (
	"context"
	"errors"
	"io"
	"runtime"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Store is what an import needs of containerd. Every method of its parts takes the namespace from
// the context.
type Store struct {
	Content content.Store
	Images  images.Store
	Leases  leases.Manager
	// Namespaces lists the namespaces that the store has.
	Namespaces func(context.Context) ([]string, error)
	// Probe looks for the file of a blob that the database lists: nil when it is there and has the
	// descriptor's size, ErrNotFound of errdefs when it is absent.
	Probe func(context.Context, ocispec.Descriptor) error
	// Purge removes from the disk what is left of blobs that no namespace lists any more.
	Purge func(context.Context, []digest.Digest) error
	// Ping asks whether the store answers. What it says does not matter, only that it is said: see
	// [Connect]. It is nil for a store that is not asked but looked at.
	Ping func(context.Context) error
	// Free returns the bytes that are free for blobs. It is nil when that cannot be known.
	Free func(context.Context) (int64, error)
	// Link makes the file at a path that of a blob, with a hard link, once its content is known to be
	// the blob's. The error is ErrFailedPrecondition of errdefs when it is another, EXDEV when the
	// store is on another file system. It is nil for a store that cannot do that.
	Link func(ctx context.Context, desc ocispec.Descriptor, path string) error
	// Snapshotter returns the snapshotter of a name, "" meaning the store's default. It is nil when
	// the store has none.
	Snapshotter func(ctx context.Context, name string) (*Snapshotter, error)
	// Offline says that no daemon serves the store; it only chooses the report's mode.
	Offline bool
}

// NewStore returns the store of the containerd that c is connected to.
func NewStore(c *containerd.Client) *Store {
	return &Store{
		Content: c.ContentStore(), Images: c.ImageService(), Leases: c.LeasesService(),
		Namespaces: c.NamespaceService().List, Ping: pingOnline(c),
		Probe: probeOnline(c), Purge: purgeOnline(c), Snapshotter: onlineSnapshotter(c), Free: freeOnline(c),
	}
}

// Source is a place to look for bundles.
type Source struct {
	// Path is a preseed directory (its sub-directories are namespaces), a bundle file or an OCI
	// layout directory. With Reader set it is only the name that the report uses, "-" as a rule.
	Path string
	// Namespace is where the bundle goes when Path is a bundle. Bundles that lie directly in a
	// preseed directory go there too, its sub-directories are namespaces all the same. "" means
	// Options.Namespace.
	Namespace string
	// Reader is read instead of Path when it is set: one bundle, to its end.
	Reader io.Reader
}

// Options say how bundles are read and imported. The zero value imports for the host's platform,
// pins what it imports and goes on after a bad bundle.
type Options struct {
	// Namespace is the default for sources that name none.
	Namespace string
	// Platform is the platform that has to be able to run the images, as in "linux/arm64".
	// "" means the host's.
	Platform string
	// AllPlatforms needs and imports every platform that a bundle lists, attestations included.
	AllPlatforms bool
	// Jobs is the number of blobs that are copied at a time. 0 means one more than there are CPUs, for
	// one waits for containerd's answer, and at most 4: more gain nothing.
	Jobs int
	// NoPin leaves the pin label as it is. Without it images are pinned against the garbage
	// collection of the kubelet.
	NoPin bool
	// DigestRefs adds a record NAME@DIGEST beside each image's name.
	DigestRefs bool
	// Name is given to an image without a name. It is an error when more than one image needs it.
	Name string
	// Require lists references that must be in the store (or, for Check, in the bundles) at the
	// end. They are compared as containerd normalises them.
	Require []string
	// FailFast stops at the first bundle that fails; the bundles after it are reported as skipped.
	FailFast bool
	// Strict makes failures of what is otherwise a warning.
	Strict bool
	// UnpinMissing takes the pin from images that an earlier import pinned and whose bundle is
	// gone.
	UnpinMissing bool
	// Repair makes Verify import again what is missing or damaged.
	Repair bool
	// DryRun decides and reports, and writes nothing to the store.
	DryRun bool
	// IgnoreMissing takes a source that does not exist for an empty one.
	IgnoreMissing bool
	// Unpack makes a snapshot of each image before it is named. Images for other platforms than
	// Platform are not unpacked.
	Unpack bool
	// Link makes hard links of a layout directory's blobs instead of copies. Bundles for which that
	// cannot be done fail.
	Link bool
	// Snapshotter is the name of the snapshotter to unpack with. "" means the store's default,
	// overlayfs.
	Snapshotter string
	// Sandbox is the image that every pod of the node needs. It is a warning when no bundle of the
	// namespace k8s.io has it. "" means that none is looked for.
	Sandbox string
	// Reconnect finds a containerd that went away in the middle of an import, and has to wait for it
	// as long as that is wanted. It is called once. nil means that the import ends then.
	Reconnect func(context.Context) (*Store, error)
	// SpoolDir is where archives that have to be decompressed first are kept meanwhile, in files
	// without a name. "" means the system's temporary directory.
	SpoolDir string
	// Progress is called with what happens. Calls do not overlap. nil means nobody listens.
	Progress func(Event)
}

func (o Options) withDefaults() Options {
	if o.Jobs <= 0 {
		o.Jobs = min(4, runtime.NumCPU()+1)
	}
	if o.Progress == nil {
		o.Progress = func(Event) {}
	}
	return o
}

// matcher returns the order of preference among platforms. An invalid platform is an error.
func (o Options) matcher() (platforms.MatchComparer, string, error) {
	if o.Platform == "" {
		host := platforms.DefaultSpec()
		return platforms.Only(host), platforms.Format(host), nil
	}
	p, err := platforms.Parse(o.Platform)
	if err != nil {
		return nil, "", &OptionError{
			Option: "platform", Value: o.Platform, Err: errors.New("no platform: expected OS/ARCHITECTURE or OS/ARCHITECTURE/VARIANT"),
			Advice: "name the platform as in linux/amd64 or linux/arm/v7, or leave the option out for that of this host",
		}
	}
	p = platforms.Normalize(p)
	return platforms.Only(p), platforms.Format(p), nil
}
