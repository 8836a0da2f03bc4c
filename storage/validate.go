package storage

import (
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
	v := &validator{ids: map[string]int{}, paths: map[string]string{}, kinds: map[string]Kind{}}
	if l.Schema != Schema {
		v.report("layout", "schema %q: expected %q", l.Schema, Schema)
	}
	if len(l.Nodes) == 0 {
		v.report("layout", "no nodes: expected at least one")
	}
	for i := range l.Nodes {
		v.node(i, &l.Nodes[i])
	}
	for i := range l.Nodes {
		v.ancestors(i, &l.Nodes[i])
	}
	v.mounts(l)
	return errors.Join(v.findings...)
}

// validator collects findings.
type validator struct {
	findings []error
	ids      map[string]int    // id → index of the first node that has it
	paths    map[string]string // clean path → position of the first node there
	kinds    map[string]Kind   // clean path → kind
}

func (v *validator) report(position, format string, args ...any) {
	v.findings = append(v.findings, &ValidationError{position, fmt.Sprintf(format, args...)})
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
	for word := range strings.SplitSeq(id, ".") {
		if word == "" || strings.Trim(word, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
			return fmt.Sprintf("id %q: expected words of a-z, 0-9 and _ with dots between", id)
		}
	}
	return ""
}

func (v *validator) node(i int, n *Node) {
	at := position(i, n)
	if fact := badID(n.ID); fact != "" {
		v.report(at, "%s", fact)
	} else if first, twice := v.ids[n.ID]; twice {
		v.report(at, "id %q is already that of nodes[%d]", n.ID, first)
	} else {
		v.ids[n.ID] = i
	}
	if fact := badPath(n.Path); fact != "" {
		v.report(at, "%s", fact)
	}
	clean := path.Clean(n.Path)
	if first, twice := v.paths[clean]; twice {
		v.report(at, "path %q is already that of %s", n.Path, first)
	} else {
		v.paths[clean], v.kinds[clean] = at, n.Kind
	}
	v.properties(at, n)
	v.symlink(at, n)
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
	case strings.ContainsFunc(p, unicode.IsControl) || !utf8.ValidString(p):
		return fmt.Sprintf("path %q: contains a control character or no UTF-8", p)
	case strings.ContainsFunc(p, unseen):
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

// unseen reports whether a character has no look of its own: a mark that turns the direction of text, say, or what JSON
// makes of bytes that are not UTF-8.
func unseen(r rune) bool { return r == utf8.RuneError || !unicode.IsGraphic(r) }

// properties checks kind, mode, owner, creator and condition.
func (v *validator) properties(at string, n *Node) {
	if !n.Kind.known() {
		v.report(at, "kind %q: expected dir, file, fifo, socket or symlink", n.Kind)
	}
	if n.Mode == 0 && n.Kind != KindSymlink || n.Mode&^modeBits != 0 {
		v.report(at, "mode %s: expected an octal string such as \"0755\"", n.Mode)
	}
	if n.UID < 0 || n.GID < 0 || int64(n.UID) >= math.MaxUint32 || int64(n.GID) >= math.MaxUint32 {
		v.report(at, "owner %d:%d: expected numbers from 0 to %d", n.UID, n.GID, int64(math.MaxUint32)-1)
	}
	if n.User != "" && badAccount(n.User) {
		v.report(at, "user %q: is no name of a user", n.User)
	}
	if n.Group != "" && badAccount(n.Group) {
		v.report(at, "group %q: is no name of a group", n.Group)
	}
	if !slices.Contains([]string{"", CreatorSeedbed, CreatorRuntime, CreatorOperator}, n.Creator) {
		v.report(at, "creator %q: expected seedbed, runtime or operator", n.Creator)
	}
	if n.When != "" && n.When != WhenImage {
		v.report(at, "when %q: expected %q or nothing", n.When, WhenImage)
	}
	if n.Kind == KindSocket && len(n.Path) > maxSocketPath {
		v.report(at, "socket path %q: %d bytes long: at most %d can be bound", n.Path, len(n.Path), maxSocketPath)
	}
}

func (v *validator) symlink(at string, n *Node) {
	switch {
	case n.Kind != KindSymlink && n.Target != "":
		v.report(at, "target %q: only a symlink has one", n.Target)
	case n.Kind == KindSymlink && n.Target == "":
		v.report(at, "target is empty: expected what the symlink points to")
	case len(n.Target) > maxPath || strings.ContainsRune(n.Target, 0):
		v.report(at, "target %.40q: is no path", n.Target)
	}
}

// ancestors checks that whatever stands above a node is a directory.
func (v *validator) ancestors(i int, n *Node) {
	if !strings.HasPrefix(n.Path, "/") {
		return
	}
	for p := path.Dir(path.Clean(n.Path)); p != "/"; p = path.Dir(p) {
		if kind, declared := v.kinds[p]; declared && kind != KindDir {
			v.report(position(i, n), "path %q: lies below %q, which %s declares as %s", n.Path, p, v.paths[p], kind)
		}
	}
}

func (v *validator) mounts(l *Layout) {
	seen := map[string]bool{}
	for i, m := range l.Mounts {
		at := fmt.Sprintf("mount %s (mounts[%d])", m.ID, i)
		node, known := v.ids[m.ID]
		switch {
		case seen[m.ID]:
			v.report(at, "id %q is already that of another mount", m.ID)
		case !known:
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
			v.report(position(i, n), "mount %q: there is no such mount", n.Mount)
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
