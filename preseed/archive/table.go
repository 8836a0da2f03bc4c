package archive

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

const (
	manifestFile = "manifest.json" // of docker archives

	maxName     = 4096     // bytes of a member's name: PATH_MAX
	maxDocument = 32 << 20 // bytes of a JSON document that is read
	maxLinks    = 40       // links that are followed, as in the kernel
	maxIgnored  = 64       // ignored members that are named
	tableBudget = 16 << 20 // bytes of memory for members that may matter
	memberCost  = 96       // bytes of memory that a member takes beside its names
)

// member is where a member's data lies, or what it is a link to.
type member struct {
	offset, size int64
	link         string // target as written
	typeflag     byte   // tar.TypeReg, tar.TypeSymlink, tar.TypeLink or tar.TypeGNUSparse
	piece        *piece // where the data of a stream's member is, unless it is spooled
}

func (m member) isLink() bool { return m.typeflag == tar.TypeSymlink || m.typeflag == tar.TypeLink }

// table is the index of a tar: its members by their clean names. A tar with
// more members than the budget is walked again for those that turn out to
// matter, so that memory is bounded however many there are. Of two members
// with one name the later counts, as when a tar is extracted.
type table struct {
	r            io.ReaderAt
	size         int64
	members      map[string]member
	survey       survey
	unterminated bool

	budget int             // bytes that are left for members
	left   int             // members that the first walk had no room for
	wanted map[string]bool // kept whatever the budget, by walks after the first
}

// index walks the tar in r once.
func index(ctx context.Context, r io.ReaderAt, size int64, budget int) (*table, error) {
	t := newTable(r, size, budget)
	var err error
	t.unterminated, err = walk(ctx, r, size, func(h *tar.Header, offset int64) {
		t.survey.add(h.Name)
		if !t.add(h, offset) {
			t.left++
		}
	})
	return t, err
}

func newTable(r io.ReaderAt, size int64, budget int) *table {
	return &table{r: r, size: size, members: map[string]member{}, budget: budget, wanted: map[string]bool{
		ocispec.ImageLayoutFile: true, ocispec.ImageIndexFile: true, manifestFile: true,
	}}
}

// add puts a member into the table. It is false when there is no room.
func (t *table) add(h *tar.Header, offset int64) bool {
	m := member{offset: offset, size: h.Size, link: h.Linkname, typeflag: memberType(h)}
	if m.typeflag == tar.TypeDir {
		return true
	}
	name := cleanName(h.Name)
	if name == "" || len(m.link) > maxName {
		return true
	}
	_, known := t.members[name]
	if !known && !t.wanted[name] {
		cost := len(name) + len(m.link) + memberCost
		if t.left > 0 || cost > t.budget {
			return false
		}
		t.budget -= cost
	}
	// The header's strings may be part of larger ones.
	m.link = strings.Clone(m.link)
	t.members[strings.Clone(name)] = m
	return true
}

// docker says whether the tar is a docker archive and no OCI archive as well.
func (t *table) docker() bool {
	_, layout := t.members[ocispec.ImageLayoutFile]
	_, oci := t.members[ocispec.ImageIndexFile]
	_, docker := t.members[manifestFile]
	return docker && !(layout && oci)
}

// memberType sorts the kinds of members into those that matter; all that do
// not are tar.TypeDir.
func memberType(h *tar.Header) byte {
	_, sparse := h.PAXRecords["GNU.sparse.major"]
	_, oldSparse := h.PAXRecords["GNU.sparse.map"]
	switch {
	case sparse || oldSparse || h.Typeflag == tar.TypeGNUSparse:
		return tar.TypeGNUSparse
	case h.Typeflag == tar.TypeReg, h.Typeflag == tar.TypeSymlink, h.Typeflag == tar.TypeLink:
		return h.Typeflag
	}
	return tar.TypeDir
}

// ensure walks the tar again for names that may have been left out, and for
// what they are links to.
func (t *table) ensure(ctx context.Context, names []string) error {
	for round := 0; t.left > 0 && round < maxLinks; round++ {
		asked := false
		for _, name := range t.unresolved(names) {
			asked = asked || !t.wanted[name]
			t.wanted[name] = true
		}
		if !asked {
			return nil
		}
		if _, err := walk(ctx, t.r, t.size, func(h *tar.Header, offset int64) { t.add(h, offset) }); err != nil {
			return err
		}
	}
	return nil
}

// unresolved returns those of names, and of the names that they link to, that
// are not in the table.
func (t *table) unresolved(names []string) []string {
	missing := map[string]bool{}
	for _, name := range names {
		for range maxLinks {
			m, ok := t.members[name]
			if !ok {
				missing[name] = true
				break
			}
			if !m.isLink() {
				break
			}
			targets := m.targets(name)
			for _, target := range targets {
				if _, ok := t.members[target]; !ok {
					missing[target] = true
				}
			}
			name = t.firstOf(targets)
		}
	}
	return slices.Sorted(maps.Keys(missing))
}

// targets are the names that a link may mean, the likeliest first: a symbolic
// link is relative to its directory, but some writers take the archive's root
// (containerd issue 12890). A hard link is always a member's name.
func (m member) targets(name string) []string {
	rooted := path.Clean("/" + m.link)[1:]
	if m.typeflag == tar.TypeLink || strings.HasPrefix(m.link, "/") {
		return []string{rooted}
	}
	beside := path.Join(path.Dir(name), m.link)
	if beside == ".." || strings.HasPrefix(beside, "../") {
		return []string{rooted}
	}
	return []string{beside, rooted}
}

func (t *table) firstOf(names []string) string {
	for _, name := range names {
		if _, ok := t.members[name]; ok {
			return name
		}
	}
	return names[0]
}

// resolve finds the regular file that name is or links to.
func (t *table) resolve(name string) (string, member, *Error) {
	chain := []string{name}
	for {
		current := chain[len(chain)-1]
		m, ok := t.members[current]
		switch {
		case !ok && len(chain) == 1:
			return "", m, t.absent(name)
		case !ok:
			link := chain[len(chain)-2]
			return "", m, &Error{
				Code: CodeMissingBlob, Member: name, Found: fmt.Sprintf("%s is a link to %s, which is not in the archive", quote(link), quote(t.members[link].link)),
				Advice: "write the archive again with the program that made it, or pack it with tar --dereference",
			}
		case m.typeflag == tar.TypeGNUSparse:
			return "", m, &Error{
				Code: CodeNotAnImage, Member: name, Found: "a sparse member", Expected: "a regular file",
				Advice: "pack the archive again without tar --sparse",
			}
		case !m.isLink():
			return current, m, nil
		}
		next := t.firstOf(m.targets(current))
		if slices.Contains(chain, next) || len(chain) > maxLinks {
			return "", m, &Error{
				Code: CodeMissingBlob, Member: name, Found: fmt.Sprintf("links in a circle: %s", arrows(append(chain, next))), Expected: "a link to a file",
				Advice: "write the archive again with the program that made it",
			}
		}
		chain = append(chain, next)
	}
}

func (t *table) absent(name string) *Error {
	e := &Error{Code: CodeMissingBlob, Member: name, Found: "not in the archive"}
	if t.unterminated {
		e.Code, e.Found = CodeTruncated, fmt.Sprintf("not in the archive, which ends at byte %d without its end mark", t.size)
		e.Advice = "it was not copied to its end: fetch or write it again"
	}
	return e
}

// arrows shows a chain of links, its middle left out when it is long.
func arrows(chain []string) string {
	if len(chain) > 6 {
		chain = slices.Concat(chain[:3], []string{"…"}, chain[len(chain)-2:])
	}
	shown := make([]string, len(chain))
	for i, name := range chain {
		shown[i] = quote(name)
	}
	return strings.Join(shown, " -> ")
}

// document reads a member that is JSON.
func (t *table) document(name string) ([]byte, error) {
	_, m, missing := t.resolve(name)
	if missing != nil {
		return nil, missing
	}
	if m.piece != nil && m.piece.finish != nil {
		return nil, notJSON(name, m.piece.data, nil)
	}
	return readDocument(t.at("", name, m).Reader(), name, m.size)
}

func readDocument(r io.Reader, name string, size int64) ([]byte, error) {
	if size > maxDocument {
		return nil, &Error{Code: CodeNotAnImage, Member: name, Found: fmt.Sprintf("a document of %d bytes", size), Expected: fmt.Sprintf("at most %d", maxDocument)}
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(r, data); err != nil {
		return nil, fmt.Errorf("read %s: %w", quote(name), err)
	}
	return data, nil
}
