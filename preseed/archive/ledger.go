package archive

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"github.com/opencontainers/go-digest"
)

const (
	ledgerVersion = 1
	maxLedger     = 4 << 20 // bytes of a ledger
	trailerSize   = 8       // bytes: CRC and size of gzip (RFC 1952), the end of zstd's frame with its checksum (RFC 8878)
)

// ledger is what an archive that is costly to read was found to hold.
type ledger struct {
	Version      int
	File         identity
	Format       Format
	Images       []Image
	Ignored      []string `json:",omitempty"`
	IgnoredCount int      `json:",omitempty"`
	Blobs        []ledgerBlob
}

// identity is what tells that a file is the one that was read. The times
// change with every write, and the change time cannot be set back.
type identity struct {
	Device, Inode uint64
	Size          int64
	Modified      int64 // nanoseconds since 1970, as is Changed
	Changed       int64
	Trailer       string // its last bytes in hexadecimal
}

// ledgerBlob is a blob, and its data when it is a document.
type ledgerBlob struct {
	Digest digest.Digest
	Found  digest.Digest `json:",omitempty"` // of the bytes; "" when they can be read at Offset
	Size   int64
	Member string `json:",omitempty"`
	Offset int64  `json:",omitempty"` // in the file
	Data   []byte `json:",omitempty"`
}

// Ledger returns what [Options.Ledger] wants to have of the archive when it is
// opened the next time. It is nil when there is nothing to be gained by it, the
// archive is a stream, an image of it cannot be had, or its documents take too
// much room.
func (a *Archive) Ledger() ([]byte, error) {
	if !a.costly || a.file == nil || slices.ContainsFunc(a.Images, func(i Image) bool { return i.Err != nil }) {
		return nil, nil
	}
	l := ledger{Version: ledgerVersion, File: a.self, Format: a.Format, Images: a.Images, Ignored: a.Ignored, IgnoredCount: a.IgnoredCount}
	var err error
	if l.File.Trailer, err = a.trailer(); err != nil {
		return nil, err
	}
	for _, b := range a.list() {
		entry, err := a.ledgerBlob(b)
		if err != nil {
			return nil, err
		}
		l.Blobs = append(l.Blobs, entry)
	}
	slices.SortFunc(l.Blobs, func(a, b ledgerBlob) int { return strings.Compare(string(a.Digest), string(b.Digest)) })
	data, err := json.Marshal(l)
	if err != nil || len(data) > maxLedger {
		return nil, err
	}
	return data, nil
}

func (a *Archive) ledgerBlob(b *Blob) (ledgerBlob, error) {
	entry := ledgerBlob{Digest: b.Digest, Found: b.Found, Size: b.Size, Member: b.Member}
	if b.Kept {
		return entry, nil
	}
	if a.Compression == None && b.offset > 0 {
		entry.Offset = b.offset
		return entry, nil
	}
	data := make([]byte, b.Size) // of a small member, or of a document
	if _, err := io.ReadFull(b.Reader(), data); err != nil {
		return entry, fmt.Errorf("read %s: %w", quote(b.Member), err)
	}
	entry.Found = digest.FromBytes(data)
	if isDocument(data) {
		entry.Data = data
	}
	return entry, nil
}

// restore makes of the ledger what reading the archive would make. It is false
// when there is none that is of this very file.
func (o Options) restore(a *Archive) bool {
	if o.Ledger == nil {
		return false
	}
	data := o.Ledger()
	if data == nil {
		return false
	}
	self := a.self
	var l ledger
	var err error
	if self.Trailer, err = a.trailer(); err != nil {
		return false // reading the archive will say why
	}
	if err := json.Unmarshal(data, &l); err != nil || l.Version != ledgerVersion || l.File != self {
		return false
	}
	blobs := map[digest.Digest]*Blob{}
	for _, entry := range l.Blobs {
		blobs[entry.Digest] = entry.blob(a.file)
	}
	a.Format, a.Images, a.Ignored, a.IgnoredCount, a.Restored = l.Format, l.Images, l.Ignored, l.IgnoredCount, true
	a.find = (&docker{blobs: blobs}).find
	return true
}

func (e ledgerBlob) blob(file io.ReaderAt) *Blob {
	b := &Blob{Digest: e.Digest, Size: e.Size, Member: e.Member, Found: e.Found, offset: e.Offset}
	switch {
	case e.Data != nil:
		b.ReaderAt = bytes.NewReader(e.Data)
	case e.Offset > 0:
		b.ReaderAt = io.NewSectionReader(file, e.Offset, e.Size)
	default:
		b.ReaderAt, b.Kept = bytes.NewReader(nil), true
	}
	return b
}

// trailer reads the end of the file.
func (a *Archive) trailer() (string, error) {
	end := make([]byte, min(trailerSize, a.Size))
	if _, err := a.file.ReadAt(end, a.Size-int64(len(end))); err != nil && err != io.EOF {
		return "", fmt.Errorf("read: %w", err)
	}
	return hex.EncodeToString(end), nil
}

func identityOf(info fs.FileInfo) identity {
	id := identity{Size: info.Size(), Modified: info.ModTime().UnixNano()}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		id.Device, id.Inode, id.Changed = uint64(stat.Dev), stat.Ino, stat.Ctim.Nano()
	}
	return id
}
