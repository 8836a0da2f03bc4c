package storage

import (
	"bytes"
	"os"
	"testing"
)

func TestUsage(t *testing.T) {
	root := t.TempDir()
	l := layout(t, "dir / 0755", "dir /etc 0755", "dir /etc/mine 0755", "dir /a 0755", "dir /a/b 0755", "dir /a/c 0755", "file /a/b/f 0644", "file /a/none 0644")
	l.Nodes[0].Host, l.Nodes[1].Host = true, true
	m := place(t, l, root).Manifest
	mebibyte := bytes.Repeat([]byte("x"), 1<<20)
	must(t, os.WriteFile(root+"/a/b/f", mebibyte, 0o644))
	must(t, os.Link(root+"/a/b/f", root+"/a/c/again")) // counted once
	must(t, os.WriteFile(root+"/etc/theirs", mebibyte, 0o644))
	must(t, os.WriteFile(root+"/etc/mine/f", mebibyte, 0o644))
	must(t, os.Symlink("/", root+"/a/c/link")) // not followed
	got, err := Usage(t.Context(), m)
	must(t, err)
	for id, want := range map[string]int64{"a": 1, "a.b": 1, "a.c": 0, "a.b.f": 1, "etc.mine": 1} {
		if n, ok := got[id]; !ok || n>>20 != want {
			t.Errorf("%s takes %d bytes: expected %d MiB and a little", id, n, want)
		}
	}
	for _, id := range []string{"root", "etc", "a.none"} {
		if n, ok := got[id]; ok {
			t.Errorf("%s takes %d bytes: expected that it is not counted", id, n)
		}
	}
}
