package archive

import (
	"io"

	"github.com/opencontainers/go-digest"
)

// Blob is one piece of content of an archive.
type Blob struct {
	Digest digest.Digest // what the archive claims
	Size   int64         // bytes that are there
	Member string        // member of the archive, links resolved; empty for a manifest made from a docker archive
	Path   string        // the blob's own file in a layout directory; empty elsewhere

	io.ReaderAt // good for several goroutines, until the archive is closed
}

// Reader reads the blob from its begin to its end. Every call gives a reader
// of its own.
func (b *Blob) Reader() *io.SectionReader { return io.NewSectionReader(b, 0, b.Size) }
