package storage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// Manifest is a layout as placed.
type Manifest struct {
	Schema string `json:"schema"`
	Layout string `json:"layout"`
	// LayoutFile is the file on the host that the layout was read from; empty for a built-in one.
	LayoutFile  string `json:"layout_file,omitempty"`
	Declaration string `json:"declaration"`
	// Root is the root's path on the host.
	Root string `json:"root"`
	// BootID is /proc/sys/kernel/random/boot_id at the time of placing.
	BootID string `json:"boot_id"`
	// Generation is a random name of this writing of the manifest.
	Generation string  `json:"generation"`
	Nodes      []Node  `json:"nodes"`
	Mounts     []Mount `json:"mounts"`
}

// DefaultManifest returns where a root's manifest is: <root>/run/seedbed/manifest.json.
func DefaultManifest(root string) string { return filepath.Join(root, manifestInRoot) }

const manifestInRoot = "/run/seedbed/manifest.json"

// CleanRoot returns the root as an absolute, clean path; "" is /. A relative path begins at the working directory.
func CleanRoot(root string) (string, error) {
	if root == "" {
		return "/", nil
	}
	if strings.ContainsRune(root, 0) || !utf8.ValidString(root) { // the manifest could not say it
		return "", &fs.PathError{Op: "clean", Path: root, Err: unix.EINVAL}
	}
	return filepath.Abs(root)
}

// ReadManifest reads the manifest that [Place] wrote. It returns [ErrNoManifest] when there is none, [ErrUntrusted]
// when it may have been written by somebody else, or belongs to another root, boot or declaration, and a [*BadDocument]
// when its bytes are damaged; each with a hint.
//
// From the root down to the file each part has to be root's, or of a caller that the root belongs to, writable by
// nobody else, and no link. What lies above the root does not count: whoever names a root vouches for the way to it.
func ReadManifest(name string) (*Manifest, error) {
	data, err := readTrusted(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil, &advised{fmt.Errorf("read %q: %w", name, ErrNoManifest), "run seedbed storage place first"}
	}
	if err != nil {
		return nil, err
	}
	m, err := decode(data, maxManifest)
	if err == nil {
		err = m.layout().Validate()
	}
	if err != nil {
		return nil, &BadDocument{name, err}
	}
	if err := m.belongs(name); err != nil {
		return nil, err
	}
	return m, nil
}

// ReadManifestOf is [ReadManifest] for a manifest that has to describe a root, wherever it lies itself. One of another
// root is an [ErrUntrusted].
func ReadManifestOf(name, root string) (*Manifest, error) {
	m, err := ReadManifest(name)
	if err == nil && !sameDir(root, m.Root) {
		return nil, untrusted(name, "name the root and the manifest of one tree, or one of both only", "it describes the root %q, not %q", m.Root, root)
	}
	return m, err
}

// bootID returns the kernel's name for this boot: random(4).
func bootID() (string, error) {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(data)), err
}

// layout is the manifest as what should be there.
func (m *Manifest) layout() *Layout {
	return &Layout{Schema: m.Schema, Name: m.Layout, Declaration: m.Declaration, Nodes: m.Nodes, Mounts: m.Mounts}
}

// Tree returns the tree's typed handles with their paths on the host. The handle of a node that the manifest does not
// have gives "".
func (m *Manifest) Tree() *Root {
	paths := make(map[string]string, len(m.Nodes))
	for i := range m.Nodes {
		paths[m.Nodes[i].ID] = filepath.Join(m.Root, m.Nodes[i].Path)
	}
	tree := &Root{}
	visit(reflect.ValueOf(tree).Elem(), rootElement(tree), func(e element) { *e.full = paths[e.id] }, func(string, string) {})
	return tree
}

// FullPath returns the path on the host of the node with the id, or an [*UnknownNode].
func (m *Manifest) FullPath(id string) (string, error) {
	for i := range m.Nodes {
		if m.Nodes[i].ID == id {
			return filepath.Join(m.Root, m.Nodes[i].Path), nil
		}
	}
	return "", &UnknownNode{ID: id, Nearest: m.nearest(id)}
}

// nearest returns up to three ids that are likely to be meant.
func (m *Manifest) nearest(id string) []string {
	type candidate struct {
		id   string
		cost int
	}
	var all []candidate
	for i := range m.Nodes {
		c := candidate{m.Nodes[i].ID, distance(id, m.Nodes[i].ID)}
		if strings.HasSuffix(c.id, "."+id) {
			c.cost = 0
		}
		if c.cost <= max(len(id)/3, 2) {
			all = append(all, c)
		}
	}
	slices.SortStableFunc(all, func(a, b candidate) int { return a.cost - b.cost })
	var ids []string
	for _, c := range all[:min(3, len(all))] {
		ids = append(ids, c.id)
	}
	return ids
}

// distance is the number of bytes to insert, remove or exchange to turn a into b (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}

// manifestFile is where the manifest goes, and what is there now.
type manifestFile struct {
	dir   *folder
	name  string
	found found
	text  string // what is there now
	write bool   // it has to be replaced
	data  []byte // by this
}

// manifest plans the manifest: what it will say, whether that is news, and which nodes of the previous one are orphans.
func (pl *planner) manifest(o PlaceOptions) error {
	boot, err := bootID()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err // without /proc, in a bare chroot, there is no boot to name; readers on a booted host will not trust it
	}
	pl.plan.manifest = &Manifest{
		Schema: Schema, Layout: pl.layout.Name, LayoutFile: pl.layout.file, Declaration: pl.digest,
		Root: o.Root, BootID: boot, Nodes: pl.placed, Mounts: pl.placedMounts,
	}
	if err := pl.manifestNodes(o); err != nil {
		pl.refuse(err)
		return nil
	}
	f, err := pl.openManifest(o)
	if err == nil {
		err = pl.believed(&f, o)
	}
	if err != nil {
		pl.refuse(err)
		return nil
	}
	f.write = !pl.unchanged(&f) || f.found.mode != manifestMode || f.found.uid != pl.caller.uid || f.found.links != 1
	if f.write {
		pl.parents(f.dir)
		pl.writable(f.dir)
		f.data, err = pl.plan.manifest.encode()
	}
	pl.plan.file = f
	return err
}

// unchanged reports whether the manifest that is there says what the new one does; the plan has the one that is there
// then. Mostly it does so byte for byte, and need not be decoded to be seen to.
func (pl *planner) unchanged(f *manifestFile) bool {
	next := pl.plan.manifest
	if next.isText(f.text) {
		return true
	}
	if len(f.text) > 0 {
		previous, err := decode(f.text, maxManifest)
		if err != nil {
			pl.warn("the previous manifest %q cannot be read (%v) and is replaced", f.dir.hostOf(f.name), err)
			return false
		}
		pl.orphans(previous)
		if previous.says(next) {
			pl.plan.manifest = previous
			return true
		}
	}
	return false
}

// isText reports whether a text is the manifest's but for the generation and, of an image root, the boot: see says.
// These it takes over from the text then.
func (m *Manifest) isText(text string) bool {
	was := *m
	m.Generation = headField(text, "generation")
	if m.Root != "/" {
		m.BootID = headField(text, "boot_id")
	}
	same := true
	err := m.parts(func(part []byte) {
		if same = same && strings.HasPrefix(text, string(part)); same {
			text = text[len(part):]
		}
	})
	if err == nil && same && text == "" {
		return true
	}
	*m = was
	return false
}

// headField finds a field that stands before the nodes, without decoding.
func headField(text, name string) string {
	_, value, _ := strings.Cut(text[:min(len(text), 16<<10)], `"`+name+`":"`)
	value, _, _ = strings.Cut(value, `"`)
	return value
}

// manifestNodes refuses nodes that take the manifest's place, or make what is above it no directory or one that readers
// do not trust.
func (pl *planner) manifestNodes(o PlaceOptions) error {
	inside, ok := strings.CutPrefix(o.Manifest, strings.TrimSuffix(o.Root, "/"))
	if !ok {
		return nil
	}
	var findings []error
	above := path.Dir(inside)
	for i := range pl.placed {
		n := &pl.placed[i]
		fact := ""
		switch {
		case isOrBelow(n.Path, inside):
			fact = "is the manifest's own place"
		case isOrBelow(inside, n.Path) && n.Kind != KindDir && !n.Host:
			fact = "lies above the manifest: expected a dir"
		case n.Path == above && n.Mode&0o022 != 0 && !n.Host:
			fact = fmt.Sprintf("holds the manifest, and has mode %s: expected it writable by its owner only", n.Mode)
		}
		if fact != "" {
			findings = append(findings, &ValidationError{position(i, n), fmt.Sprintf("path %q: %s", n.Path, fact)})
		}
	}
	return errors.Join(findings...)
}

// isOrBelow reports whether a clean path is another one or lies below it.
func isOrBelow(p, dir string) bool {
	return strings.HasPrefix(p, dir) && (len(p) == len(dir) || p[len(dir)] == '/' || dir == "/")
}

// believed refuses what the manifest's readers would: to write one that nobody will believe is to leave a tree that
// nothing runs on. The root itself has to be root's or the caller's wherever the manifest is: what belongs to the host
// in it keeps its owner, and the tree would have two.
func (pl *planner) believed(f *manifestFile, o PlaceOptions) error {
	root, t := pl.walk.root, truster{caller: *pl.caller, own: true}
	err := t.owner(root.host(), pl.willBe(root))
	anchor, parts := chain(o.Manifest)
	dirs := []*folder{f.dir}
	for up := f.dir.up; len(dirs) < len(parts) && up != nil; up = up.up {
		dirs = append(dirs, up) // short of the root only where that is named by a link
	}
	slices.Reverse(dirs)
	for i, dir := range dirs {
		switch {
		case err != nil:
		case i == 0:
			err = t.anchor(anchor, pl.willBe(dir), len(parts) == 1)
		default:
			err = t.look(dir.host(), pl.willBe(dir), KindDir)
		}
	}
	if err == nil {
		err = t.owner(o.Manifest, found{uid: pl.caller.uid})
	}
	if d := (*doubt)(nil); errors.As(err, &d) {
		return &UnsafePath{Path: d.name, Fact: d.fact + ", else no reader believes the manifest", Advice: d.advice}
	}
	return err
}

// willBe is what a directory is once all is placed.
func (pl *planner) willBe(f *folder) found {
	got, n := f.found, f.node
	switch {
	case f.absent && n == nil:
		made := Node{Mode: 0o755}
		pl.own(&made)
		n = &made
	case n == nil, n.Host && !f.absent:
		return got
	}
	got.kind, got.mode, got.uid, got.gid = KindDir, n.Mode, n.UID, n.GID
	return got
}

// openManifest finds the manifest's directory and reads what is there. Inside the root no link may lead to it, because
// its readers know only its path on the host.
func (pl *planner) openManifest(o PlaceOptions) (manifestFile, error) {
	f := manifestFile{name: filepath.Base(o.Manifest)}
	inside, ok := strings.CutPrefix(o.Manifest, strings.TrimSuffix(o.Root, "/")+"/")
	if !ok {
		w, err := newWalker(filepath.Dir(o.Manifest))
		if err != nil {
			return f, err
		}
		pl.walk.beside = append(pl.walk.beside, w)
		f.dir = w.root
		if w.root.absent {
			return f, &advised{w.root.fail("open", "", unix.ENOENT), "make the directory that the manifest is to be in"}
		}
		if err := pl.readPrevious(&f); err != nil {
			return f, err
		}
		return f, f.ofRoot(o)
	}
	dir, name, err := pl.walk.locate("/" + inside)
	if err != nil {
		return f, err
	}
	f.dir = dir
	if path.Join(dir.path, name) != "/"+inside {
		return f, &Conflict{
			Path: filepath.Dir(o.Manifest), Want: "a directory reached without symbolic links",
			Got: "a link to " + dir.path,
		}
	}
	return f, pl.readPrevious(&f)
}

// ofRoot refuses to write into another root, or over what says where another tree is.
func (f *manifestFile) ofRoot(o PlaceOptions) error {
	root, isDefault := strings.CutSuffix(o.Manifest, manifestInRoot)
	root = "/" + strings.Trim(root, "/")
	if previous, err := decode(f.text, maxManifest); !isDefault && err == nil {
		root = previous.Root
	} else if !isDefault {
		return nil // it is replaced
	}
	if sameDir(root, o.Root) {
		return nil
	}
	return &advised{
		fmt.Errorf("write %q: %w: it is the manifest of the root %q, not of %q", o.Manifest, ErrUntrusted, root, o.Root),
		"nothing was changed; name the root and the manifest of one tree, or leave out the manifest",
	}
}

// readPrevious reads the manifest that is there.
func (pl *planner) readPrevious(f *manifestFile) (err error) {
	if f.found, err = f.dir.look(f.name); err != nil || f.found.kind == "" {
		return err
	}
	if f.found.kind != KindFile {
		return &Conflict{Path: f.dir.hostOf(f.name), Want: string(KindFile), Got: describe(f.found.kind)}
	}
	fd, err := f.dir.open()
	if err != nil {
		return err
	}
	fd, err = unix.Openat(fd, f.name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return f.dir.fail("open", f.name, err)
	}
	file := os.NewFile(uintptr(fd), f.dir.hostOf(f.name))
	defer file.Close()
	f.text, err = readAll(file, maxManifest)
	return err
}

// readAll reads a file up to limit bytes and one more, which says that it is longer.
func readAll(f *os.File, limit int) (string, error) {
	var b strings.Builder
	if info, err := f.Stat(); err == nil {
		b.Grow(min(int(info.Size()), limit) + 1)
	}
	_, err := io.Copy(&b, io.LimitReader(f, int64(limit)+1))
	return b.String(), err
}

// says reports whether the manifest that is there says what a new one would. Its generation does not count, nor does
// the boot of an image root, nor whether a program has made its socket or file in the meantime.
func (m *Manifest) says(next *Manifest) bool {
	return m.Schema == next.Schema && m.Layout == next.Layout && m.LayoutFile == next.LayoutFile && m.Declaration == next.Declaration &&
		m.Root == next.Root && (m.BootID == next.BootID || m.Root != "/") &&
		slices.EqualFunc(m.Nodes, next.Nodes, sameNode) && slices.EqualFunc(m.Mounts, next.Mounts, sameMount)
}

func sameNode(a, b Node) bool {
	if !a.Kind.made() {
		a.State = b.State
	}
	return a == b
}

func sameMount(a, b Mount) bool {
	return a.ID == b.ID && a.Path == b.Path && a.Policy == b.Policy && a.FSType == b.FSType && a.Source == b.Source &&
		a.Size == b.Size && a.Encryption == b.Encryption && a.State == b.State && slices.Equal(a.Options, b.Options)
}

// orphans lists what the previous manifest has and this layout does not. It is left where it is.
func (pl *planner) orphans(previous *Manifest) {
	now := make(map[string]bool, len(pl.placed))
	for i := range pl.placed {
		now[pl.placed[i].Path] = true
	}
	for i := range previous.Nodes {
		n := &previous.Nodes[i]
		if now[n.Path] || badPath(n.Path) != "" {
			continue
		}
		dir, name, err := pl.walk.locate(n.Path)
		if err != nil {
			continue
		}
		if got, err := dir.look(name); err == nil && got.kind != "" {
			pl.add(Step{Action: ActionOrphan, ID: n.ID, Path: n.Path, Kind: n.Kind, From: describe(got.kind)})
		}
	}
}
