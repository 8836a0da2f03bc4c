package cmd

import (
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"seedbed/storage"
)

// drawing is a tree for a person to look at.
type drawing struct {
	nodes  []storage.Node
	mounts []storage.Mount
	drift  []storage.Drift
	usage  map[string]int64 // bytes by id; nil where they are not shown
	colour bool
}

// colours reports whether standard output takes colours: a terminal does, unless
// it is a dumb one or NO_COLOR is set (no-color.org).
func (g *globals) colours() bool {
	out, ok := g.streams.Out.(*pipeWriter)
	return ok && os.Getenv("NO_COLOR") == "" && newTerminal(out.w) != nil
}

// The colours, as SGR parameters (ECMA-48).
const (
	bold   = "1"
	faint  = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
)

func (d *drawing) paint(colour, text string) string {
	if !d.colour || colour == "" || text == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// branch is one path of the drawn tree; node is nil for a directory that no
// node of the layout describes.
type branch struct {
	name     string
	node     *storage.Node
	children []*branch
}

// line is a line of the drawing: a branch behind the strokes that lead to it.
type line struct {
	strokes string
	branch  *branch
}

// label is the line's first column, without colour.
func (l line) label() string { return l.strokes + printable(l.branch.name) }

// write draws the nodes as a tree of their paths, in the order of their names.
func (d *drawing) write(w io.Writer) error {
	root := &branch{name: "/"}
	for i := range d.nodes {
		root.find(d.nodes[i].Path).node = &d.nodes[i]
	}
	lines := root.lines(nil, "", "")
	width, owners := 0, false
	for _, l := range lines {
		width = max(width, utf8.RuneCountInString(l.label()))
		owners = owners || l.branch.node != nil && owner(l.branch.node) != ""
	}
	var out strings.Builder
	for _, l := range lines {
		text := l.label()
		if n := l.branch.node; n != nil {
			colour := map[storage.Kind]string{storage.KindDir: bold}[n.Kind]
			space := strings.Repeat(" ", width-utf8.RuneCountInString(text))
			text = l.strokes + d.paint(colour, printable(l.branch.name)) + space + d.describe(n, owners)
		}
		out.WriteString(text + "\n")
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// find returns the branch of an absolute path and makes what leads to it.
func (b *branch) find(full string) *branch {
	at := b
	for name := range strings.SplitSeq(strings.Trim(path.Clean(full), "/"), "/") {
		if name != "" {
			at = at.child(name)
		}
	}
	return at
}

func (b *branch) child(name string) *branch {
	i, found := slices.BinarySearchFunc(b.children, name, func(c *branch, name string) int {
		return strings.Compare(c.name, name)
	})
	if !found {
		b.children = slices.Insert(b.children, i, &branch{name: name})
	}
	return b.children[i]
}

// lines appends the branch and its children; first stands before its own line,
// rest before the lines below it.
func (b *branch) lines(all []line, first, rest string) []line {
	all = append(all, line{first, b})
	for i, child := range b.children {
		if i == len(b.children)-1 {
			all = child.lines(all, rest+"└── ", rest+"    ")
		} else {
			all = child.lines(all, rest+"├── ", rest+"│   ")
		}
	}
	return all
}

// describe is what stands behind a node's name, in columns but for what few
// nodes have: a target, a mount, drift.
func (d *drawing) describe(n *storage.Node, owners bool) string {
	columns := []string{"", fmt.Sprintf("%-7s", n.Kind), n.Mode.String()}
	if owners {
		columns = append(columns, fmt.Sprintf("%-11s", owner(n)))
	}
	if n.State != "" {
		columns = append(columns, d.paint(stateColour(n.State), fmt.Sprintf("%-8s", n.State)))
	}
	if d.usage != nil {
		columns = append(columns, fmt.Sprintf("%10s", usageText(d.usage, n.ID)))
	}
	columns = append(columns, n.ID)
	if n.Target != "" {
		columns = append(columns, "-> "+printable(n.Target))
	}
	for i := range d.mounts {
		if d.mounts[i].ID == n.ID {
			columns = append(columns, d.paint(cyan, mountText(&d.mounts[i])))
		}
	}
	for _, drift := range d.drift {
		if drift.ID == n.ID {
			columns = append(columns, d.paint(red, "DRIFT: found "+printable(drift.Got)+", expected "+printable(drift.Want)))
		}
	}
	return strings.Join(columns, "  ")
}

func stateColour(state string) string {
	switch state {
	case storage.StatePresent:
		return green
	case storage.StateReserved:
		return yellow
	}
	return faint
}

// owner is a node's owner, "" for root.
func owner(n *storage.Node) string {
	user, group := n.User, n.Group
	if user == "" {
		user = fmt.Sprint(n.UID)
	}
	if group == "" {
		group = fmt.Sprint(n.GID)
	}
	if user == "0" && group == "0" {
		return ""
	}
	return user + ":" + group
}

// mountText describes a mount: [xfs noexec, require: mounted].
func mountText(m *storage.Mount) string {
	words := append([]string{m.FSType}, m.Options...)
	for _, word := range []string{m.Source, m.Size, m.Encryption} {
		if word != "" {
			words = append(words, word)
		}
	}
	text := strings.TrimSpace(strings.Join(words, " ")) + ", " + m.Policy
	if m.State != "" {
		text += ": " + m.State
	}
	return "[" + printable(text) + "]"
}

// usageText is a node's space in the largest unit that leaves a whole number.
func usageText(usage map[string]int64, id string) string {
	bytes, counted := usage[id]
	if !counted {
		return "-"
	}
	for _, unit := range []string{"B", "KiB", "MiB", "GiB"} {
		if bytes < 1024 {
			return fmt.Sprintf("%d %s", bytes, unit)
		}
		bytes = (bytes + 512) / 1024
	}
	return fmt.Sprintf("%d TiB", bytes)
}
