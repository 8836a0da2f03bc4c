package storage

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestValidate(t *testing.T) {
	dir := func(id, path string) Node { return Node{ID: id, Path: path, Kind: KindDir, Mode: 0o755} }
	node := func(change func(*Node)) []Node {
		n := dir("a", "/a")
		change(&n)
		return []Node{n}
	}
	long := "/" + strings.Repeat("s", 107)
	cases := []struct {
		name  string // begins with the case that the row is from
		nodes []Node
		want  string
	}{
		{
			"S03 a directory below a file",
			[]Node{{ID: "f", Path: "/foo/bar", Kind: KindFile, Mode: 0o644}, dir("d", "/foo/bar/baz")},
			`node d (nodes[1]): path "/foo/bar/baz": lies below "/foo/bar"`,
		},
		{
			"S03 a file far below a socket",
			[]Node{dir("d", "/s/x/y"), {ID: "s", Path: "/s", Kind: KindSocket, Mode: 0o600}},
			`lies below "/s", which node s (nodes[1]) declares as socket`,
		},
		{
			"S04 the same path twice",
			[]Node{dir("a", "/a/b"), {ID: "b", Path: "/a/b", Kind: KindFile, Mode: 0o644}},
			`node b (nodes[1]): path "/a/b" is already that of node a`,
		},
		{"S04 two paths that clean to one: dot", []Node{dir("a", "/a/b"), dir("b", "/a/./b")}, `path "/a/./b" is already that of node a`},
		{"S04 two paths that clean to one: slashes", []Node{dir("a", "/a/b"), dir("b", "/a//b")}, `path "/a//b" is already that of node a`},
		{"S04 the same id twice", []Node{dir("a", "/a"), dir("a", "/b")}, `id "a" is already that of nodes[0]`},
		{"S05 dot dot", []Node{dir("a", "/a/../b")}, `node a (nodes[0]): path "/a/../b": name ".."`},
		{"S05 dot", []Node{dir("a", "/a/.")}, `name "."`},
		{"S05 empty path", []Node{dir("a", "")}, "path is empty"},
		{"S05 empty name", []Node{dir("a", "/a//b")}, "name is empty"},
		{"S05 trailing slash", []Node{dir("a", "/a/")}, "name is empty"},
		{"S05 NUL", []Node{dir("a", "/a\x00b")}, "control character"},
		{"S05 newline", []Node{dir("a", "/a\nb")}, "control character"},
		{"S05 a mark that turns the direction of text", []Node{dir("a", "/a\u202eb")}, "character that cannot be seen"},
		{"S05 what JSON makes of bytes that are not UTF-8", []Node{dir("a", "/a\ufffd")}, "character that cannot be seen"},
		{"S05 relative", []Node{dir("a", "a/b")}, "is relative"},
		{"S05 name of 256 bytes", []Node{dir("a", "/"+strings.Repeat("n", 256))}, "256 bytes long"},
		{"S05 no id", []Node{dir("", "/a")}, `nodes[0]: id ""`},
		{"S05 id in capitals", []Node{dir("A", "/a")}, `id "A"`},
		{"S14 a socket path of 108 bytes", []Node{{ID: "s", Path: long, Kind: KindSocket, Mode: 0o600}}, "108 bytes long: at most 107"},
		{"unknown kind", node(func(n *Node) { n.Kind = "device" }), `kind "device"`},
		{"no mode", node(func(n *Node) { n.Mode = 0 }), "mode 0000"},
		{"negative owner", node(func(n *Node) { n.UID = -1 }), "owner -1:0"},
		{"unknown creator", node(func(n *Node) { n.Creator = "me" }), `creator "me"`},
		{"unknown condition", node(func(n *Node) { n.When = "never" }), `when "never"`},
		{"a symlink without a target", node(func(n *Node) { n.Kind = KindSymlink }), "target is empty"},
		{"a directory with a target", node(func(n *Node) { n.Target = "/x" }), "only a symlink"},
		{"unknown mount", node(func(n *Node) { n.Mount = "data" }), `mount "data": there is no such mount`},
		{"nothing", nil, "no nodes"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			l := &Layout{Schema: Schema, Nodes: c.nodes}
			err := l.Validate()
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("Validate: %v: expected …%s…", err, c.want)
			}
			root := t.TempDir()
			before := snapshot(t, root)
			if _, err := Place(t.Context(), l, PlaceOptions{Root: root}); !errors.As(err, new(*ValidationError)) {
				t.Errorf("Place: %v: expected a ValidationError", err)
			}
			untouched(t, root, before)
		})
	}
}

func TestValidateJoinsEverything(t *testing.T) {
	l := &Layout{Schema: Schema, Nodes: []Node{{ID: "a", Path: "a", Kind: "x"}, {ID: "b", Path: "/..", Kind: KindDir, Mode: 0o755}}}
	for _, want := range []string{"node a (nodes[0]): path", "node a (nodes[0]): kind", "node b (nodes[1]): path"} {
		if err := l.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Validate: %v: expected …%s… in it", err, want)
		}
	}
}

func TestValidateMounts(t *testing.T) {
	cases := []struct {
		name  string
		mount Mount
		want  string
	}{
		{"no such node", Mount{ID: "x", Path: "/x", Policy: PolicyMake}, `no node "x"`},
		{"another path", Mount{ID: "d", Path: "/x", Policy: PolicyMake}, `expected the dir "/x"`},
		{"unknown policy", Mount{ID: "d", Path: "/d", Policy: "maybe"}, `policy "maybe"`},
	}
	for _, c := range cases {
		l := layout(t, "dir /d 0755")
		l.Mounts = []Mount{c.mount}
		if err := l.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v: expected …%s…", c.name, err, c.want)
		}
	}
}

func TestReadLayoutIsStrict(t *testing.T) {
	good, err := json.Marshal(layout(t, "dir /a 0755"))
	must(t, err)
	cases := []struct{ name, content, want string }{
		{"unknown field", `{"schema":"seedbed.storage/v1","nodez":[]}`, "nodez"},
		{"unknown field of a node", strings.Replace(string(good), `"kind"`, `"kinds"`, 1), "kinds"},
		{"trailing data", string(good) + "{}", "data after the end"},
		{"empty", " \n", "empty file"},
		{"cut off", string(good[:len(good)/2]), "ends too early"},
		{"not JSON", "<html>", "line 1, column 2"},
		{"another schema", `{"schema":"seedbed.storage/v2"}`, `expected "seedbed.storage/v1"`},
		{"mode as a number", strings.Replace(string(good), `"0755"`, `493`, 1), "expected"},
		{"mode in words", strings.Replace(string(good), `"0755"`, `"rwx"`, 1), "octal"},
		{"over 1 MiB", string(good) + strings.Repeat(" ", maxLayout), "more than 1048576 bytes"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			name := filepath.Join(t.TempDir(), "layout.json")
			must(t, os.WriteFile(name, []byte(c.content), 0o644))
			_, err := ReadLayout(name)
			if !errors.As(err, new(*BadDocument)) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), name) {
				t.Errorf("ReadLayout: %v: expected a BadDocument with …%s…", err, c.want)
			}
		})
	}
}

func TestManifestIsALayout(t *testing.T) {
	root := t.TempDir()
	l := builtin(t, "node")
	place(t, l, root)
	again, err := ReadLayout(DefaultManifest(root))
	must(t, err)
	if len(again.Nodes) != len(l.Nodes) || again.Nodes[3].State != "" || again.Mounts[0].State != "" {
		t.Errorf("the manifest read as a layout keeps states or loses nodes")
	}
	must(t, again.Validate())
}

// FuzzLayout feeds the parser anything. What it accepts and finds valid has to survive its own JSON.
func FuzzLayout(f *testing.F) {
	// Small seeds: a whole built-in layout keeps the fuzzer busy with making it smaller.
	for _, seed := range []string{
		`{"id":"a","path":"/a","kind":"dir","mode":"0755","uid":0,"gid":0}`,
		`{"id":"s","path":"/s","kind":"socket","mode":"0600","uid":0,"gid":0,"creator":"runtime","state":"reserved"}`,
		`{"id":"l","path":"/l","kind":"symlink","mode":"0777","uid":0,"gid":0,"target":"/x","host":true,"when":"image"}`,
	} {
		f.Add([]byte(`{"schema":"seedbed.storage/v1","layout":"x","nodes":[` + seed + `],"mounts":[]}`))
	}
	f.Add([]byte(`{"schema":"seedbed.storage/v1","nodes":[{"id":"a","path":"/a","kind":"dir","mode":"0755","mount":"a"}],` +
		`"mounts":[{"id":"a","path":"/a","policy":"make","fstype":"tmpfs","options":["ro"]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := parseLayout(string(data))
		if q, ok := quick(string(data)); ok {
			if s, err := strict(string(data)); err != nil || !reflect.DeepEqual(q, s) {
				t.Fatalf("read quickly: %+v: strictly: %+v, %v", q, s, err)
			}
		}
		if err != nil || l.Validate() != nil {
			return
		}
		out, err := json.Marshal(l)
		if err != nil {
			t.Fatalf("marshal: %v", err)
		}
		again, err := parseLayout(string(out))
		if err != nil {
			t.Fatalf("parse again: %v", err)
		}
		if err := again.Validate(); err != nil || again.Digest() != l.Digest() {
			t.Fatalf("after a round trip: %v, declaration %s: expected %s", err, again.Digest(), l.Digest())
		}
	})
}
