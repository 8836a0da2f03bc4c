package cmd

import (
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"seedbed/storage"
)

// branch is one path of the drawn tree; node is nil for a directory that no
// node of the layout describes.
type branch struct {
	name     string
	node     *storage.Node
	children []*branch
}

// drawTree draws nodes as a tree of their paths, in the order of their names.
func drawTree(w io.Writer, nodes []storage.Node) error {
	root := &branch{name: "/"}
	for i := range nodes {
		root.find(nodes[i].Path).node = &nodes[i]
	}
	var out strings.Builder
	root.draw(&out, "", "")
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

// draw writes the branch and its children; first stands before its own line,
// rest before the lines below it.
func (b *branch) draw(out *strings.Builder, first, rest string) {
	label := first + printable(b.name)
	if b.node == nil {
		fmt.Fprintln(out, label)
	} else {
		fmt.Fprintf(out, "%-52s %s\n", label, describeNode(b.node))
	}
	for i, child := range b.children {
		if i == len(b.children)-1 {
			child.draw(out, rest+"└── ", rest+"    ")
		} else {
			child.draw(out, rest+"├── ", rest+"│   ")
		}
	}
}

func describeNode(n *storage.Node) string {
	words := []string{fmt.Sprintf("%-7s", n.Kind), fmt.Sprint(n.Mode)}
	if n.Target != "" {
		words = append(words, "-> "+printable(n.Target))
	}
	if n.State != "" {
		words = append(words, fmt.Sprintf("%-8s", n.State))
	}
	return strings.Join(append(words, n.ID), "  ")
}
