package storage

import (
	"encoding/json"
	"strconv"
	"strings"
)

// quick decodes a document of the usual form several times faster than encoding/json: plain strings, no field twice,
// none that is not known. It reports false where it finds anything else, right or wrong, and says nothing about it:
// that is left to encoding/json. What it accepts it reads as encoding/json does, strictly.
func quick(text string) (*Manifest, bool) {
	s := &scanner{text: text}
	m := &Manifest{}
	seen := map[string]bool{}
	s.object(func(field string) {
		if seen[field] {
			s.odd = true
			return
		}
		seen[field] = true
		s.member(m, field)
	})
	s.space()
	return m, !s.odd && s.at == len(text)
}

// scanner reads JSON. Once it has met something odd it reads no further.
type scanner struct {
	text string // every string of the document is a part of it
	at   int
	odd  bool
}

// member reads a field of the document.
func (s *scanner) member(m *Manifest, field string) {
	switch field {
	case "schema":
		m.Schema = s.string()
	case "layout":
		m.Layout = s.string()
	case "layout_file":
		m.LayoutFile = s.string()
	case "declaration":
		m.Declaration = s.string()
	case "root":
		m.Root = s.string()
	case "boot_id":
		m.BootID = s.string()
	case "generation":
		m.Generation = s.string()
	case "nodes":
		m.Nodes = make([]Node, 0, strings.Count(s.text, `"id"`))
		var n *Node
		field := func(name string) { s.node(n, name) }
		s.list(func() {
			m.Nodes = append(m.Nodes, Node{})
			n = &m.Nodes[len(m.Nodes)-1]
			s.object(field)
		})
	case "mounts":
		s.mounts(m)
	default:
		s.odd = true
	}
}

// node reads a field of a node. One that is there twice is read twice, and the last counts.
func (s *scanner) node(n *Node, field string) {
	switch field {
	case "id":
		n.ID = s.string()
	case "path":
		n.Path = s.string()
	case "kind":
		n.Kind = Kind(s.string())
	case "mode":
		if n.Mode.UnmarshalText([]byte(s.string())) != nil {
			s.odd = true
		}
	case "uid":
		n.UID = s.number()
	case "gid":
		n.GID = s.number()
	case "secret":
		n.Secret = s.bool()
	case "host":
		n.Host = s.bool()
	case "tighten":
		n.Tighten = s.bool()
	default:
		if word := n.word(field); word != nil {
			*word = s.string()
			return
		}
		s.odd = true
	}
}

// word is the field of that name which is a string that may be left out.
func (n *Node) word(field string) *string {
	switch field {
	case "user":
		return &n.User
	case "group":
		return &n.Group
	case "target":
		return &n.Target
	case "mount":
		return &n.Mount
	case "creator":
		return &n.Creator
	case "when":
		return &n.When
	case "state":
		return &n.State
	}
	return nil
}

// mounts reads the mounts, which are few, with encoding/json.
func (s *scanner) mounts(m *Manifest) {
	s.space()
	d := json.NewDecoder(strings.NewReader(s.text[s.at:]))
	d.DisallowUnknownFields()
	if d.Decode(&m.Mounts) != nil {
		s.odd = true
		return
	}
	s.at += int(d.InputOffset())
}

func (s *scanner) space() {
	for s.at < len(s.text) && (s.text[s.at] == ' ' || s.text[s.at] == '\n' || s.text[s.at] == '\t' || s.text[s.at] == '\r') {
		s.at++
	}
}

// next reports whether the next byte, after any space, is c, and goes past it then.
func (s *scanner) next(c byte) bool {
	s.space()
	if s.odd || s.at >= len(s.text) || s.text[s.at] != c {
		return false
	}
	s.at++
	return true
}

func (s *scanner) expect(c byte) {
	if !s.next(c) {
		s.odd = true
	}
}

// object calls f before the value of each field.
func (s *scanner) object(f func(field string)) {
	s.expect('{')
	if s.next('}') {
		return
	}
	for !s.odd {
		field := s.string()
		s.expect(':')
		if !s.odd {
			f(field)
		}
		if s.next('}') {
			return
		}
		s.expect(',')
	}
}

// list calls f before each value.
func (s *scanner) list(f func()) {
	s.expect('[')
	if s.next(']') {
		return
	}
	for !s.odd {
		f()
		if s.next(']') {
			return
		}
		s.expect(',')
	}
}

// string reads a string without escapes, of ASCII.
func (s *scanner) string() string {
	s.expect('"')
	from := s.at
	for s.at < len(s.text) && plain(s.text[s.at]) {
		s.at++
	}
	to := s.at
	if s.at >= len(s.text) || s.text[s.at] != '"' {
		s.odd = true
	}
	if s.odd {
		return ""
	}
	s.at++
	return s.text[from:to]
}

// number reads a whole number of no more than ten digits.
func (s *scanner) number() int {
	s.space()
	from := s.at
	for s.at < len(s.text) && s.text[s.at] >= '0' && s.text[s.at] <= '9' {
		s.at++
	}
	digits := s.text[from:s.at]
	v, err := strconv.Atoi(digits)
	if err != nil || len(digits) > 10 || len(digits) > 1 && digits[0] == '0' {
		s.odd = true
	}
	return v
}

func (s *scanner) bool() bool {
	for _, word := range []string{"true", "false"} {
		s.space()
		if len(s.text)-s.at >= len(word) && s.text[s.at:s.at+len(word)] == word {
			s.at += len(word)
			return word == "true"
		}
	}
	s.odd = true
	return false
}
