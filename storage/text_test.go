package storage

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestTextIsThatOfTheLibrary: what is appended by hand is what encoding/json writes, so the digests stay what they are.
func TestTextIsThatOfTheLibrary(t *testing.T) {
	nodes := []Node{
		{},
		{ID: "a.b", Path: "/a/b", Kind: KindFIFO, Mode: 0o7, UID: -1, GID: 1 << 32},
		{Mode: 0o7777, User: "u", Group: "g", Target: "/t", Mount: "m", Creator: "c", Secret: true, Host: true, Tighten: true, When: "w", State: "s"},
		{Mode: 0o12345, Path: "/\"\\\n\x00\x7f\xff", Target: "<&>\u2028ü"},
	}
	for i := range nodes {
		want, err := json.Marshal(&nodes[i])
		must(t, err)
		if got := nodes[i].appendJSON(nil); !bytes.Equal(got, want) {
			t.Errorf("node:\n%s\nexpected\n%s", got, want)
		}
	}
	for _, l := range []*Layout{builtin(t, "node"), {Nodes: nodes}} {
		whole, err := json.Marshal(struct {
			Nodes  []Node
			Mounts []Mount
		}{l.Nodes, l.Mounts})
		must(t, err)
		if sum := sha256.Sum256(whole); l.Digest() != "sha256:"+hex.EncodeToString(sum[:]) {
			t.Errorf("layout %q: another digest than that of its JSON", l.Name)
		}
	}
}

// TestTheUsualIsReadQuickly: what the program writes itself takes the short way, and means the same on both.
func TestTheUsualIsReadQuickly(t *testing.T) {
	root := t.TempDir()
	place(t, builtin(t, "fhs"), root)
	manifest, err := os.ReadFile(DefaultManifest(root))
	must(t, err)
	texts := []string{string(manifest)}
	for _, name := range BuiltinNames() {
		indented, err := json.MarshalIndent(builtin(t, name), "", "\t")
		must(t, err)
		texts = append(texts, string(indented))
	}
	for _, text := range texts {
		got, ok := quick(text)
		want, err := strict(text)
		if !ok || err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("quick: %v, strict: %v, or they differ about\n%.200s", ok, err, text)
		}
	}
}

func TestTheUnusualIsLeftToTheLibrary(t *testing.T) {
	node := `{"id":"a","path":"/a","kind":"dir","mode":"0755","uid":0,"gid":0,"secret":true}`
	whole := `{"schema":"x","nodes":[` + node + `],"mounts":[{"id":"a"}]}`
	if _, ok := quick(whole); !ok {
		t.Fatal("the document that is changed below is not read quickly")
	}
	for name, change := range map[string][2]string{
		"cut off":               {`]}`, ``},
		"data after the end":    {`"a"}]}`, `"a"}]}{}`},
		"an unknown field":      {`"kind"`, `"kinds"`},
		"a field in capitals":   {`"kind"`, `"Kind"`},
		"a document's field":    {`"schema"`, `"schemas"`},
		"the nodes twice":       {`"schema":"x"`, `"nodes":[]`},
		"an escape":             {`/a"`, `/\u0061"`},
		"more than ASCII":       {`/a"`, `/ä"`},
		"a control character":   {`/a"`, "/\n\""},
		"null":                  {`"dir"`, `null`},
		"a negative number":     {`"uid":0`, `"uid":-1`},
		"a fraction":            {`"uid":0`, `"uid":0.0`},
		"a leading zero":        {`"uid":0`, `"uid":00`},
		"no number":             {`"uid":0`, `"uid":`},
		"a number that is long": {`"uid":0`, `"uid":12345678901`},
		"a bad mode":            {`0755`, `0999`},
		"a bad truth":           {`true`, `tru`},
		"a comma too many":      {node, node + ","},
		"a mount's field":       {`{"id":"a"}]`, `{"ids":"a"}]`},
	} {
		text := strings.Replace(whole, change[0], change[1], 1)
		if _, ok := quick(text); ok || text == whole {
			t.Errorf("%s: read quickly: %s", name, text)
		}
	}
}

// TestManifestOfAnotherWriting: a manifest that says the same in other words is not written again.
func TestManifestOfAnotherWriting(t *testing.T) {
	root := t.TempDir()
	l := layout(t, "dir /a 0755", "fifo /a/f 0600")
	m := *place(t, l, root).Manifest
	for name, change := range map[string]func(){"of another boot": func() { m.BootID = "another" }, "indented": func() {}} {
		change()
		data, err := json.MarshalIndent(&m, "", " ")
		must(t, err)
		must(t, os.WriteFile(DefaultManifest(root), data, 0o644))
		if r := place(t, l, root); r.Written || r.Manifest.Generation != m.Generation || r.Manifest.BootID != m.BootID {
			t.Errorf("%s: written %v, the manifest returned is not the one that is there", name, r.Written)
		}
	}
}

// BenchmarkNothingToDo places 10,000 nodes that are there already: one directory for each 100, FIFOs among the rest.
func BenchmarkNothingToDo(b *testing.B) {
	l := &Layout{Schema: Schema, Name: "bench", Mounts: []Mount{}}
	for i := range 100 {
		id := fmt.Sprintf("n%02d", i)
		l.Nodes = append(l.Nodes, Node{ID: id, Path: "/" + id, Kind: KindDir, Mode: 0o755})
		for j := range 99 {
			n := Node{ID: fmt.Sprintf("%s.c%02d", id, j), Path: fmt.Sprintf("/%s/c%02d", id, j), Kind: KindDir, Mode: 0o750}
			if j < 10 {
				n.Kind, n.Mode = KindFIFO, 0o600
			}
			l.Nodes = append(l.Nodes, n)
		}
	}
	data, err := json.Marshal(l)
	if err != nil {
		b.Fatal(err)
	}
	file, root := filepath.Join(b.TempDir(), "layout.json"), b.TempDir()
	if err := os.WriteFile(file, data, 0o644); err != nil {
		b.Fatal(err)
	}
	for written := true; b.Loop(); written = false {
		l, err := ReadLayout(file)
		if err != nil {
			b.Fatal(err)
		}
		if r, err := Place(b.Context(), l, PlaceOptions{Root: root}); err != nil || r.Written != written {
			b.Fatal(err, r.Written)
		}
	}
}
