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

	// Kept says that the blob was handed to [Options.Keep], now or when the
	// ledger was made, and that no more than its begin can be read from here.
	// Found is the digest of what was handed out.
	Kept  bool
	Found digest.Digest

	offset int64 // in the archive's file; 0 when it is not there

	io.ReaderAt // good for several goroutines, until the archive is closed
}

// Reader reads the blob from its begin to its end. Every call gives a reader
// of its own.
func (b *Blob) Reader() *io.SectionReader { return io.NewSectionReader(b, 0, b.Size) }
