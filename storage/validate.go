package storage

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// maxSocketPath is what fits into sun_path with its final NUL: unix(7).
	maxSocketPath = 107
	maxName       = 255  // NAME_MAX
	maxPath       = 4095 // PATH_MAX without its final NUL
)

// Validate reports everything that is wrong with the layout itself, without a look at any file system. Each finding is
// a [*ValidationError] with its position; they are joined.
func (l *Layout) Validate() error {
	v := &validator{nodes: l.Nodes, paths: make([]string, len(l.Nodes))}
	if l.Schema != Schema {
		v.report("layout", "schema %q: expected %q", l.Schema, Schema)
	}
	if len(l.Nodes) == 0 {
		v.report("layout", "no nodes: expected at least one")
	}
	for i := range l.Nodes {
		v.node(i, &l.Nodes[i])
	}
	v.names()
	v.places()
	v.mounts(l)
	return errors.Join(v.findings...)
}

// validator collects findings.
type validator struct {
	findings []error
	nodes    []Node
	paths    []string // of each node, clean
	ids      []int    // nodes in the order of their ids
}

func (v *validator) report(position, format string, args ...any) {
	v.findings = append(v.findings, &ValidationError{position, fmt.Sprintf(format, args...)})
}

// about reports a finding about a node.
func (v *validator) about(i int, format string, args ...any) {
	v.report(v.position(i), format, args...)
}

func (v *validator) position(i int) string { return position(i, &v.nodes[i]) }

// ordered returns the nodes in an order, equal ones as they are listed. A list in that order already, which most are,
// is gone through once.
func (v *validator) ordered(compare func(a, b int) int) []int {
	order := make([]int, len(v.nodes))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(compare(a, b), a-b) })
	return order
}

// position names a node: by its id, or by its place in the list when it has none.
func position(i int, n *Node) string {
	if n.ID == "" {
		return fmt.Sprintf("nodes[%d]", i)
	}
	return fmt.Sprintf("node %s (nodes[%d])", n.ID, i)
}

// badID says what is wrong with an id, or returns "".
func badID(id string) string {
	inWord := false
	for i := range len(id) {
		c := id[i]
		letter := c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_'
		if !letter && (c != '.' || !inWord) {
			inWord = false
			break
		}
		inWord = letter
	}
	if !inWord {
		return fmt.Sprintf("id %q: expected words of a-z, 0-9 and _ with dots between", id)
	}
	return ""
}

func (v *validator) node(i int, n *Node) {
	if fact := badID(n.ID); fact != "" {
		v.about(i, "%s", fact)
	}
	v.paths[i] = n.Path
	if fact := badPath(n.Path); fact != "" {
		v.about(i, "%s", fact)
		v.paths[i] = path.Clean(n.Path)
	}
	v.properties(i, n)
	v.symlink(i, n)
}

// names checks that no id is there twice.
func (v *validator) names() {
	v.ids = v.ordered(func(a, b int) int { return strings.Compare(v.nodes[a].ID, v.nodes[b].ID) })
	first := 0
	for k, i := range v.ids {
		switch id := v.nodes[i].ID; {
		case k == 0 || id != v.nodes[first].ID:
			first = i
		case badID(id) == "":
			v.about(i, "id %q is already that of nodes[%d]", id, first)
		}
	}
}

// find returns the index of the first node with an id, or -1.
func (v *validator) find(id string) int {
	k, ok := slices.BinarySearchFunc(v.ids, id, func(i int, id string) int { return strings.Compare(v.nodes[i].ID, id) })
	if !ok {
		return -1
	}
	return v.ids[k]
}

// places checks that no path is there twice, and that the nearest declared node above each is a directory; that one's
// own ancestors are checked with it.
func (v *validator) places() {
	var above []int // the nodes that the present one lies below, and its forerunner
	for _, i := range v.ordered(func(a, b int) int { return comparePaths(v.paths[a], v.paths[b]) }) {
		p := v.paths[i]
		for len(above) > 0 && !isOrBelow(p, v.paths[above[len(above)-1]]) {
			above = above[:len(above)-1]
		}
		if len(above) > 0 {
			v.below(i, above[len(above)-1])
		}
		above = append(above, i)
	}
}

// below checks a node that has the path of another, or lies below it.
func (v *validator) below(i, above int) {
	a := &v.nodes[above]
	switch {
	case v.paths[i] == v.paths[above]:
		v.about(i, "path %q is already that of %s", v.nodes[i].Path, v.position(above))
	case a.Kind != KindDir && strings.HasPrefix(v.paths[i], "/"):
		v.about(i, "path %q: lies below %q, which %s declares as %s", v.nodes[i].Path, v.paths[above], v.position(above), a.Kind)
	}
}

// badPath says what is wrong with a path, or returns "".
func badPath(p string) string {
	switch {
	case p == "":
		return "path is empty"
	case !strings.HasPrefix(p, "/"):
		return fmt.Sprintf("path %q: is relative: expected an absolute path inside the root", p)
	case p == "/":
		return ""
	case !visible(p) && (strings.ContainsFunc(p, unicode.IsControl) || !utf8.ValidString(p)):
		return fmt.Sprintf("path %q: contains a control character or no UTF-8", p)
	case !visible(p) && strings.ContainsFunc(p, unseen):
		return fmt.Sprintf("path %+q: contains a character that cannot be seen", p)
	case len(p) > maxPath:
		return fmt.Sprintf("path %.40q…: %d bytes long: at most %d are possible", p, len(p), maxPath)
	}
	for name := range strings.SplitSeq(p[1:], "/") {
		if fact := badName(name); fact != "" {
			return fmt.Sprintf("path %q: %s", p, fact)
		}
	}
	return ""
}

// visible reports whether a text is of visible ASCII characters and spaces, as most are: no other rule is needed then.
func visible(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return true
}

// unseen reports whether a character has no look of its own: a mark that turns the direction of text, say, or what JSON
// makes of bytes that are not UTF-8.
func unseen(r rune) bool { return r == utf8.RuneError || !unicode.IsGraphic(r) }

// properties checks kind, mode, owner, creator and condition.
func (v *validator) properties(i int, n *Node) {
	if !n.Kind.known() {
		v.about(i, "kind %q: expected dir, file, fifo, socket or symlink", n.Kind)
	}
	if n.Mode == 0 && n.Kind != KindSymlink || n.Mode&^modeBits != 0 {
		v.about(i, "mode %s: expected an octal string such as \"0755\"", n.Mode)
	}
	if n.UID < 0 || n.GID < 0 || int64(n.UID) >= math.MaxUint32 || int64(n.GID) >= math.MaxUint32 {
		v.about(i, "owner %d:%d: expected numbers from 0 to %d", n.UID, n.GID, int64(math.MaxUint32)-1)
	}
	if n.User != "" && badAccount(n.User) {
		v.about(i, "user %q: is no name of a user", n.User)
	}
	if n.Group != "" && badAccount(n.Group) {
		v.about(i, "group %q: is no name of a group", n.Group)
	}
	if !slices.Contains([]string{"", CreatorSeedbed, CreatorRuntime, CreatorOperator}, n.Creator) {
		v.about(i, "creator %q: expected seedbed, runtime or operator", n.Creator)
	}
	if n.When != "" && n.When != WhenImage {
		v.about(i, "when %q: expected %q or nothing", n.When, WhenImage)
	}
	if n.Kind == KindSocket && len(n.Path) > maxSocketPath {
		v.about(i, "socket path %q: %d bytes long: at most %d can be bound", n.Path, len(n.Path), maxSocketPath)
	}
}

func (v *validator) symlink(i int, n *Node) {
	switch {
	case n.Kind != KindSymlink && n.Target != "":
		v.about(i, "target %q: only a symlink has one", n.Target)
	case n.Kind == KindSymlink && n.Target == "":
		v.about(i, "target is empty: expected what the symlink points to")
	case len(n.Target) > maxPath || strings.ContainsRune(n.Target, 0):
		v.about(i, "target %.40q: is no path", n.Target)
	}
}

func (v *validator) mounts(l *Layout) {
	seen := map[string]bool{}
	for i, m := range l.Mounts {
		at := fmt.Sprintf("mount %s (mounts[%d])", m.ID, i)
		node := v.find(m.ID)
		switch {
		case seen[m.ID]:
			v.report(at, "id %q is already that of another mount", m.ID)
		case node < 0:
			v.report(at, "there is no node %q: expected the id of the directory that is the mount point", m.ID)
		case l.Nodes[node].Kind != KindDir || l.Nodes[node].Path != m.Path:
			v.report(at, "node %s is the %s %q: expected the dir %q", m.ID, l.Nodes[node].Kind, l.Nodes[node].Path, m.Path)
		}
		if !slices.Contains([]string{PolicyRequire, PolicyMake, PolicyPrefer}, m.Policy) {
			v.report(at, "policy %q: expected require, make or prefer", m.Policy)
		}
		v.mountProperties(at, &m)
		seen[m.ID] = true
	}
	for i := range l.Nodes {
		if n := &l.Nodes[i]; n.Mount != "" && !seen[n.Mount] {
			v.about(i, "mount %q: there is no such mount", n.Mount)
		}
	}
}

// mountProperties checks what is to be mounted.
func (v *validator) mountProperties(at string, m *Mount) {
	if m.Size != "" && bytesOf(m.Size) == 0 {
		v.report(at, "size %q: expected a number of bytes, or one with k, m, g or t", m.Size)
	}
	if m.Encryption != "" && m.Encryption != EncryptionDMCrypt {
		v.report(at, "encryption %q: expected %q or nothing", m.Encryption, EncryptionDMCrypt)
	}
	for _, o := range m.Options {
		if o == "" || strings.ContainsAny(o, ", \t\n\x00") {
			v.report(at, "option %q: expected one mount option without spaces and commas", o)
		}
	}
	if m.Policy == PolicyMake {
		v.made(at, m)
	}
}

// made checks a mount that Place makes.
func (v *validator) made(at string, m *Mount) {
	if m.FSType != "tmpfs" {
		v.report(at, "fstype %q: expected tmpfs, the one that is made", m.FSType)
	}
	if m.Path == "/" {
		v.report(at, "path %q: expected a directory below the root", m.Path)
	}
	if m.Encryption != "" {
		v.report(at, "encryption %q: a tmpfs has no device", m.Encryption)
	}
	for _, o := range m.Options {
		switch name, _, _ := strings.Cut(o, "="); name {
		case "mode", "uid", "gid":
			v.report(at, "option %q: the root of the mount has the mode and the owner of node %s", o, m.ID)
		case "size":
			v.report(at, "option %q: expected the field size", o)
		}
	}
}
