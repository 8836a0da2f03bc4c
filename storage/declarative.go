package storage

import (
	"fmt"
	"path"
	"reflect"
	"strconv"
	"strings"
	"unicode"
)

// Kind is what a node is on disk.
type Kind string

// The kinds of nodes. Directories, FIFOs and symbolic links are made by [Place]; files and sockets are reserved: their
// parent is made, they themselves are made by the program that owns them.
const (
	KindDir     Kind = "dir"
	KindFile    Kind = "file"
	KindFIFO    Kind = "fifo"
	KindSocket  Kind = "socket"
	KindSymlink Kind = "symlink"
)

// made reports whether seedbed itself makes nodes of this kind.
func (k Kind) made() bool { return k == KindDir || k == KindFIFO || k == KindSymlink }

// known reports whether a node can be of this kind.
func (k Kind) known() bool { return k.made() || k == KindFile || k == KindSocket }

// Mode holds the twelve permission bits of chmod(2), the sticky and set-id bits included. Its text form is octal: "0755".
type Mode uint32

const modeBits Mode = 0o7777

// String returns the mode as at least four octal digits.
func (m Mode) String() string { return string(m.append(nil)) }

// append appends the mode's text.
func (m Mode) append(b []byte) []byte {
	if m > modeBits {
		return strconv.AppendUint(b, uint64(m), 8)
	}
	return append(b, byte('0'+m>>9&7), byte('0'+m>>6&7), byte('0'+m>>3&7), byte('0'+m&7))
}

// MarshalText implements [encoding.TextMarshaler].
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText accepts three or four octal digits, with or without a leading zero.
func (m *Mode) UnmarshalText(text []byte) error {
	v, err := strconv.ParseUint(string(text), 8, 32)
	if err != nil || v > uint64(modeBits) || len(text) < 3 || len(text) > 5 {
		return fmt.Errorf("mode %q: expected an octal string such as \"0755\"", text)
	}
	*m = Mode(v)
	return nil
}

// Who makes a node.
const (
	CreatorSeedbed  = "seedbed"  // Place makes it
	CreatorRuntime  = "runtime"  // the program that owns it, when it runs
	CreatorOperator = "operator" // the OS image or a person
)

// The states of a node in a manifest.
const (
	StatePresent  = "present"  // it is there
	StateReserved = "reserved" // it is not there yet; its owner will make it
	StateAbsent   = "absent"   // it is not there and nobody is expected to make it
)

// WhenImage is the value of [Node.When] for a node that is made only in a root other than /.
const WhenImage = "image"

// Node is one entry of the tree: declared in a [Layout], or as placed in a [Manifest].
type Node struct {
	// ID is the dotted path of the field names in lower snake case: "ephemeral.containerd.client_socket".
	ID string `json:"id"`
	// Path is absolute and clean, inside the root. In a manifest, links on the way to it are resolved.
	Path string `json:"path"`
	Kind Kind   `json:"kind"`
	Mode Mode   `json:"mode"`
	// UID and GID are numbers. A caller that is not root places a tree of its own: 0 means the caller's then.
	UID int `json:"uid"`
	GID int `json:"gid"`
	// User and Group are names in the target root's passwd and group, for an owner whose numbers a layout cannot know.
	// They win over the numbers, which a manifest has as well.
	User  string `json:"user,omitempty"`
	Group string `json:"group,omitempty"`
	// Target is what a symlink points to.
	Target string `json:"target,omitempty"`
	// Mount is the id of the mount that the node stands on, empty when it is the root's own file system.
	Mount string `json:"mount,omitempty"`
	// Creator is seedbed, runtime or operator.
	Creator string `json:"creator,omitempty"`
	// Secret marks a file that holds key material.
	Secret bool `json:"secret,omitempty"`
	// Host marks a node that belongs to the host: made when it is absent, never changed when something is there.
	Host bool `json:"host,omitempty"`
	// Tighten lets the program that uses a directory take permissions away: a tighter mode is kept and is no drift.
	Tighten bool `json:"tighten,omitempty"`
	// When is empty or "image": the node is made only when the root is not /.
	When string `json:"when,omitempty"`
	// State is present, reserved or absent; a layout has none.
	State string `json:"state,omitempty"`
}

// Directory is the typed handle of a directory; a struct that embeds it declares a directory with children.
type Directory struct{ full string }

// FullPath returns the directory's path on the host, root included, or "" when the manifest has no such node.
func (d *Directory) FullPath() string { return d.full }

// File is the typed handle of a file, FIFO, socket or symbolic link.
type File struct{ full string }

// FullPath returns the file's path on the host, root included, or "" when the manifest has no such node.
func (f *File) FullPath() string { return f.full }

// element is one field of a tree of structs, or the tree itself.
type element struct {
	position string // Go names, for messages: "Root.Data.Etcd"
	id       string
	path     string
	mount    string // id of the mount it stands on
	tag      reflect.StructTag
	dir      bool
	full     *string // the handle's path
}

// visit calls do for the directory struct v, described by self, and for everything below it, parents first. Findings
// about the declaration are passed to bad, and the field they are about is left out.
func visit(v reflect.Value, self element, do func(element), bad func(position, fact string)) {
	if v.Type() == reflect.TypeFor[Directory]() {
		self.full = &v.Addr().Interface().(*Directory).full
		do(self)
		return
	}
	embedded, ok := v.Type().FieldByName("Directory")
	if !ok || !embedded.Anonymous {
		bad(self.position, "a directory's struct does not embed Directory")
		return
	}
	self.full = &v.FieldByIndex(embedded.Index).Addr().Interface().(*Directory).full
	do(self)
	names := map[string]string{}
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if field.Anonymous {
			continue
		}
		child, fact := self.child(field)
		if other, twice := names[path.Base(child.path)]; fact == "" && twice {
			fact = fmt.Sprintf("has the same name as %s", other)
		}
		if fact != "" {
			bad(self.position+"."+field.Name, fact)
			continue
		}
		names[path.Base(child.path)] = field.Name
		if child.dir {
			visit(v.Field(i), child, do, bad)
			continue
		}
		child.full = &v.Field(i).Addr().Interface().(*File).full
		do(child)
	}
}

// child describes the field of a directory, or says in fact what is wrong with it.
func (e element) child(field reflect.StructField) (c element, fact string) {
	dirName, isDir := field.Tag.Lookup("dir")
	fileName, isFile := field.Tag.Lookup("file")
	name := dirName + fileName
	isFileType := field.Type == reflect.TypeFor[File]()
	switch {
	case isDir && isFile:
		return c, "has both a dir and a file tag"
	case !isDir && !isFile:
		return c, "has neither a dir nor a file tag"
	case !field.IsExported():
		return c, "is not exported"
	case isFile && !isFileType:
		return c, "has a file tag but is not of type File"
	case isDir && (isFileType || field.Type.Kind() != reflect.Struct):
		return c, "has a dir tag but is no directory's struct"
	}
	if fact := badName(name); fact != "" {
		return c, fact
	}
	c = element{
		position: e.position + "." + field.Name,
		id:       snake(field.Name),
		path:     path.Join(e.path, name),
		mount:    e.mount,
		tag:      field.Tag,
		dir:      isDir,
	}
	if e.path != "/" {
		c.id = e.id + "." + c.id
	}
	if m := field.Tag.Get("mount"); m != "" {
		c.mount = m
	}
	return c, ""
}

// badName says what is wrong with one name of a path, or returns "".
func badName(name string) string {
	switch {
	case name == "":
		return "name is empty"
	case name == "." || name == "..":
		return fmt.Sprintf("name %q: expected a name of its own", name)
	case strings.Contains(name, "/"):
		return fmt.Sprintf("name %q: contains a slash", name)
	case !visible(name) && strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Sprintf("name %q: contains a control character", name)
	case len(name) > maxName:
		return fmt.Sprintf("name %.20q…: %d bytes long: at most %d are possible", name, len(name), maxName)
	}
	return ""
}

// snake turns a Go name into lower snake case with each initialism as one word: CNICache is cni_cache.
func snake(name string) string {
	var b strings.Builder
	r := []rune(name)
	for i, c := range r {
		startsWord := i > 0 && unicode.IsUpper(c) &&
			(!unicode.IsUpper(r[i-1]) || i+1 < len(r) && unicode.IsLower(r[i+1]))
		if startsWord {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(c))
	}
	return b.String()
}
