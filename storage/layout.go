package storage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"strings"

	"golang.org/x/sys/unix"
)

// Schema is the value of the schema field of every layout and manifest.
const Schema = "seedbed.storage/v1"

const (
	// maxLayout bounds a layout, in bytes.
	maxLayout = 1 << 20
	// maxManifest bounds a manifest, in bytes. A manifest says more of each node than a layout has to, so whatever
	// can be declared can be recorded.
	maxManifest = 4 << 20
)

// Layout is what should be there.
type Layout struct {
	Schema string `json:"schema"`
	// Name is node, fhs, or whatever a file says.
	Name string `json:"layout"`
	// Declaration is the digest of nodes and mounts ("sha256:…"). It is computed, never taken from a file: [Builtin]
	// and [Place] do so, [ReadLayout] leaves it empty.
	Declaration string  `json:"declaration,omitempty"`
	Nodes       []Node  `json:"nodes"`
	Mounts      []Mount `json:"mounts"`

	file string // where it was read, absolute
}

// BuiltinNames returns the names that [Builtin] knows.
func BuiltinNames() []string { return []string{"node", "fhs"} }

// Builtin returns a layout that comes with seedbed: "node", the tree of type [Root], or "fhs", the same ids on a stock
// Linux host.
func Builtin(name string) (*Layout, error) {
	switch name {
	case "node":
		return declare(name, &Root{})
	case "fhs":
		return fhs()
	}
	return nil, &advised{
		fmt.Errorf("find built-in layout %q: there is none of that name", name),
		"the built-in layouts are " + strings.Join(BuiltinNames(), " and "),
	}
}

// ReadLayout reads a layout from a file of at most 1 MiB. Unknown fields and trailing data are refused with a
// [*BadDocument], a document that is no valid layout with the errors of [Layout.Validate]. A manifest is accepted as a
// layout: what only says where and when it was placed is dropped. A manifest of what is placed names the file.
func ReadLayout(path string) (*Layout, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a FIFO that nobody writes into is empty
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := readAll(f, maxLayout)
	if err != nil {
		return nil, err
	}
	l, err := parseLayout(data)
	if err != nil {
		return nil, &BadDocument{path, err}
	}
	if err := l.Validate(); err != nil {
		return nil, fmt.Errorf("layout %q: %w", path, err)
	}
	l.file, err = filepath.Abs(path)
	return l, err
}

// parseLayout decodes a layout or manifest and drops what belongs to a manifest only.
func parseLayout(data string) (*Layout, error) {
	m, err := decode(data, maxLayout)
	if err != nil {
		return nil, err
	}
	l := &Layout{Schema: m.Schema, Name: m.Layout, Nodes: m.Nodes, Mounts: append([]Mount{}, m.Mounts...)}
	for i := range l.Nodes {
		l.Nodes[i].State = ""
		l.Nodes[i].dropNamed()
		l.Nodes[i].Creator = l.Nodes[i].creator()
	}
	for i := range l.Mounts {
		l.Mounts[i].State = ""
	}
	return l, nil
}

// dropNamed forgets the numbers of an owner that has a name.
func (n *Node) dropNamed() {
	if n.User != "" {
		n.UID = 0
	}
	if n.Group != "" {
		n.GID = 0
	}
}

// decode reads one document of at most limit bytes strictly. The manifest's fields are a superset of the layout's.
func decode(data string, limit int) (*Manifest, error) {
	switch {
	case len(data) > limit:
		return nil, fmt.Errorf("more than %d bytes: expected a layout or manifest", limit)
	case strings.TrimSpace(data) == "":
		return nil, errors.New("empty file: expected JSON")
	}
	m, ok := quick(data)
	if !ok {
		var err error
		if m, err = strict(data); err != nil {
			return nil, err
		}
	}
	if m.Schema != Schema {
		return nil, fmt.Errorf("schema %q: expected %q", m.Schema, Schema)
	}
	return m, nil
}

// strict decodes any document, and says what is wrong and where.
func strict(data string) (*Manifest, error) {
	d := json.NewDecoder(strings.NewReader(data))
	d.DisallowUnknownFields()
	var m Manifest
	if err := d.Decode(&m); err != nil {
		return nil, located(data, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("%s: data after the end of the document", lineColumn(data, d.InputOffset()))
	}
	return &m, nil
}

// located adds to a decoder's error where it is, when it knows.
func located(data string, err error) error {
	var syntax *json.SyntaxError
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("%s: %w", lineColumn(data, syntax.Offset), err)
	case errors.As(err, &wrong) && wrong.Type == reflect.TypeFor[Mode]():
		return fmt.Errorf("%s: %s is a %s: expected a string such as \"0755\"", lineColumn(data, wrong.Offset), wrong.Field, wrong.Value)
	case errors.As(err, &wrong):
		return fmt.Errorf("%s: %s is a %s: expected %s", lineColumn(data, wrong.Offset), wrong.Field, wrong.Value, wrong.Type)
	case err == io.ErrUnexpectedEOF:
		return fmt.Errorf("%s: the document ends too early", lineColumn(data, int64(len(data))))
	}
	if field, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		at := max(strings.Index(data, field), 0) // the decoder does not say where
		return fmt.Errorf("%s: unknown field %s", lineColumn(data, int64(at)), field)
	}
	return err
}

// lineColumn turns an offset into the words that an editor understands.
func lineColumn(data string, offset int64) string {
	before := data[:min(int(offset), len(data))]
	line := strings.Count(before, "\n") + 1
	return fmt.Sprintf("line %d, column %d", line, len(before)-strings.LastIndexByte(before, '\n'))
}

// declare reads the layout from a tree of structs. All findings about the structs are joined.
func declare(name string, tree any) (*Layout, error) {
	l := &Layout{Schema: Schema, Name: name, Nodes: []Node{}, Mounts: []Mount{}}
	var findings []error
	bad := func(position, fact string) {
		findings = append(findings, &ValidationError{position, fact})
	}
	visit(reflect.ValueOf(tree).Elem(), rootElement(tree), func(e element) {
		n, err := e.node()
		if err != nil {
			bad(e.position, err.Error())
			return
		}
		l.Nodes = append(l.Nodes, n)
		if policy := e.tag.Get("policy"); policy != "" {
			l.Mounts = append(l.Mounts, Mount{
				ID: e.mount, Path: e.path, Policy: policy,
				FSType: e.tag.Get("fstype"), Options: options(e.tag.Get("options")),
			})
		}
	}, bad)
	if err := errors.Join(findings...); err != nil {
		return nil, err
	}
	l.Declaration = l.Digest()
	return l, l.Validate()
}

// rootElement describes a whole tree; the tags of / stand on its embedded Directory.
func rootElement(tree any) element {
	t := reflect.TypeOf(tree).Elem()
	e := element{position: t.Name(), id: "root", path: "/", dir: true}
	if f, ok := t.FieldByName("Directory"); ok {
		e.tag = f.Tag
	}
	return e
}

// node is the element's node, with the defaults that its tags leave open.
func (e element) node() (Node, error) {
	n := Node{
		ID: e.id, Path: e.path, Mount: e.mount,
		Kind:    Kind(e.tag.Get("kind")),
		Target:  e.tag.Get("target"),
		Creator: e.tag.Get("creator"),
		Secret:  e.tag.Get("secret") == "true",
		Host:    e.tag.Get("host") == "true",
		Tighten: e.tag.Get("tighten") == "true",
		When:    e.tag.Get("when"),
	}
	switch {
	case e.dir:
		n.Kind = KindDir
	case n.Kind == "":
		n.Kind = KindFile
	}
	n.Creator = n.creator()
	n.Mode = defaultMode(n.Kind)
	if text := e.tag.Get("mode"); text != "" {
		return n, n.Mode.UnmarshalText([]byte(text))
	}
	return n, nil
}

// creator is the node's creator, or the one that its kind has by default.
func (n *Node) creator() string {
	switch {
	case n.Creator != "":
		return n.Creator
	case n.Kind.made():
		return CreatorSeedbed
	}
	return CreatorRuntime
}

// defaultMode is the mode of a kind where a tag says nothing. Linux gives every symbolic link the mode 0777.
func defaultMode(k Kind) Mode {
	switch k {
	case KindDir:
		return 0o755
	case KindFile:
		return 0o644
	case KindSymlink:
		return 0o777
	}
	return 0o600
}

// options splits a comma-separated list of mount options.
func options(list string) []string {
	if list == "" {
		return []string{}
	}
	return strings.Split(list, ",")
}

// moved returns a copy of the layout in which the nodes of paths stand elsewhere; a node below a moved one follows it
// unless it has a path of its own.
func (l *Layout) moved(paths map[string]string) *Layout {
	out := *l
	out.Nodes = append([]Node(nil), l.Nodes...)
	placed := map[string]string{} // old path → new path
	for i := range out.Nodes {
		n := &out.Nodes[i]
		old := n.Path
		if to, ok := paths[n.ID]; ok {
			n.Path = to
		} else if up, ok := placed[path.Dir(old)]; ok {
			n.Path = path.Join(up, path.Base(old))
		}
		placed[old] = n.Path
	}
	return &out
}
