package storage

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
)

// A tree may have ten thousand nodes and is looked at in every boot, so its text is appended by hand: it is, byte for
// byte, what [json.Marshal] writes.

// appendJSON appends the node.
func (n *Node) appendJSON(b []byte) []byte {
	b = appendString(append(b, `{"id":`...), n.ID)
	b = appendString(append(b, `,"path":`...), n.Path)
	b = appendString(append(b, `,"kind":`...), string(n.Kind))
	b = append(n.Mode.append(append(b, `,"mode":"`...)), '"')
	b = strconv.AppendInt(append(b, `,"uid":`...), int64(n.UID), 10)
	b = strconv.AppendInt(append(b, `,"gid":`...), int64(n.GID), 10)
	b = appendField(b, `,"user":`, n.User)
	b = appendField(b, `,"group":`, n.Group)
	b = appendField(b, `,"target":`, n.Target)
	b = appendField(b, `,"mount":`, n.Mount)
	b = appendField(b, `,"creator":`, n.Creator)
	b = appendFlag(b, `,"secret":`, n.Secret)
	b = appendFlag(b, `,"host":`, n.Host)
	b = appendFlag(b, `,"tighten":`, n.Tighten)
	b = appendField(b, `,"when":`, n.When)
	b = appendField(b, `,"state":`, n.State)
	return append(b, '}')
}

// appendField appends a field that is left out when it is empty.
func appendField(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	return appendString(append(b, name...), value)
}

func appendFlag(b []byte, name string, value bool) []byte {
	if !value {
		return b
	}
	return append(append(b, name...), "true"...)
}

// appendString appends a string; one that needs escapes is left to the library.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if !plain(s[i]) || s[i] == '<' || s[i] == '>' || s[i] == '&' {
			text, _ := json.Marshal(s) // any string marshals
			return append(b, text...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// plain reports whether a byte stands for itself in a JSON string.
func plain(c byte) bool { return c >= ' ' && c < 0x7f && c != '"' && c != '\\' }

// Digest is the digest of what the layout declares; its name and schema do not count.
func (l *Layout) Digest() string {
	sum := sha256.New()
	sum.Write([]byte(`{"Nodes":[`))
	eachNode(l.Nodes, "", func(part []byte) { sum.Write(part) })
	sum.Write([]byte(`],"Mounts":`))
	mounts, err := json.Marshal(l.Mounts)
	if err != nil {
		return "" // plain structs of strings always marshal
	}
	sum.Write(append(mounts, '}'))
	return "sha256:" + hex.EncodeToString(sum.Sum(nil))
}

// text is the manifest's text.
func (m *Manifest) text() ([]byte, error) {
	b := make([]byte, 0, 160*len(m.Nodes)+4096) // about what a node takes
	err := m.parts(func(part []byte) { b = append(b, part...) })
	return b, err
}

// parts calls f with the manifest's text, piece by piece. One node stands on a line, so that grep and diff are of use.
func (m *Manifest) parts(f func([]byte)) error {
	head, err := json.Marshal(Manifest{
		m.Schema, m.Layout, m.LayoutFile, m.Declaration, m.Root, m.BootID, m.Generation, []Node{}, []Mount{},
	})
	if err != nil {
		return err
	}
	f(head[:len(head)-len(`],"mounts":[]}`)])
	eachNode(m.Nodes, "\n ", f)
	f([]byte(`],"mounts":[`))
	for i := range m.Mounts {
		mount, err := json.Marshal(&m.Mounts[i])
		if err != nil {
			return err
		}
		if i > 0 {
			f([]byte{','})
		}
		f(append([]byte("\n "), mount...))
	}
	f([]byte("]}\n"))
	return nil
}

// eachNode calls f with the text of the nodes, piece by piece, with commas between them and before each what is given.
func eachNode(nodes []Node, before string, f func([]byte)) {
	b := make([]byte, 0, 4096)
	for i := range nodes {
		if i > 0 {
			b = append(b, ',')
		}
		if b = nodes[i].appendJSON(append(b, before...)); len(b) > 3000 {
			f(b)
			b = b[:0]
		}
	}
	f(b)
}
