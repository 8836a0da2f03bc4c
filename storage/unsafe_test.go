package storage

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestUnsafePathsAreRefused(t *testing.T) {
	needRoot(t)
	const alice, bob = 1111, 2222
	dir := func(t *testing.T, name string, uid int, mode uint32) {
		must(t, os.MkdirAll(name, 0o755))
		must(t, unix.Chown(name, uid, uid))
		must(t, unix.Chmod(name, mode))
	}
	cases := []struct {
		name  string
		lines []string
		make  func(t *testing.T, root string)
		want  []string // in the message; none where it is safe
	}{
		{"from a user's directory to another's", []string{"dir /a/b/c 0755"}, func(t *testing.T, root string) {
			dir(t, root+"/a", alice, 0o755)
			dir(t, root+"/a/b", bob, 0o755)
		}, []string{`/a" is of user 1111`, `/a/b" is of user 2222`}},
		{"from a user's directory to root's", []string{"dir /a/b/c 0755"}, func(t *testing.T, root string) {
			dir(t, root+"/a", alice, 0o755)
			dir(t, root+"/a/b", 0, 0o755)
		}, []string{`/a" is of user 1111`, "is of user 0"}},
		{"from root's directory to a user's", []string{"dir /a/b/c 0755"}, func(t *testing.T, root string) {
			dir(t, root+"/a/b", alice, 0o755)
			dir(t, root+"/a/b/c", alice, 0o755)
		}, []string{`/a/b" is of user 1111`, "is to be of user 0"}},
		{"a user's root", []string{"dir /a/b 0755"}, func(t *testing.T, root string) {
			dir(t, root, alice, 0o755)
			dir(t, root+"/a", 0, 0o755)
		}, []string{"it is owned by user 1111: expected root"}},
		{"a link in a sticky directory", []string{"dir /tmp 1777", "dir /tmp/l/x 0755"}, func(t *testing.T, root string) {
			dir(t, root+"/tmp", 0, 0o1777)
			must(t, os.Symlink("/etc", root+"/tmp/l"))
		}, []string{"symbolic link", "/tmp\" (owner 0:0, mode 1777), which others can write"}},
		{"a link below a directory that others can write", []string{"dir /w/d/l 0755"}, func(t *testing.T, root string) {
			dir(t, root+"/w", 0, 0o777)
			dir(t, root+"/w/d", 0, 0o755)
			must(t, os.Symlink("/etc", root+"/w/d/l"))
		}, []string{"symbolic link", "mode 0777"}},
		{"a link in a user's directory", []string{"dir /a/l 0755"}, func(t *testing.T, root string) {
			dir(t, root+"/a", alice, 0o755)
			must(t, os.Symlink("/etc", root+"/a/l"))
		}, []string{"symbolic link", "owner 1111"}},
		{"a link in a directory that a group can write", []string{"dir /a/l 0755"}, func(t *testing.T, root string) {
			dir(t, root+"/a", 0, 0o755)
			must(t, unix.Chown(root+"/a", 0, 50))
			must(t, unix.Chmod(root+"/a", 0o775))
			must(t, os.Symlink("/etc", root+"/a/l"))
		}, []string{"symbolic link", "owner 0:50"}},
		{"a link in root's directory", []string{"dir /a/l/x 0755"}, func(t *testing.T, root string) {
			dir(t, root+"/etc", 0, 0o755)
			dir(t, root+"/a", 0, 0o755)
			must(t, os.Symlink("/etc", root+"/a/l"))
		}, nil},
		{"a FIFO with two names where others can write", []string{"dir /tmp 1777", "fifo /tmp/f 0600"}, func(t *testing.T, root string) {
			dir(t, root+"/tmp", 0, 0o1777)
			must(t, unix.Mkfifo(root+"/tmp/f", 0o644))
			must(t, os.Link(root+"/tmp/f", root+"/g"))
		}, []string{"2 hard links", "mode 1777"}},
		{"a FIFO with two names elsewhere", []string{"fifo /f 0600"}, func(t *testing.T, root string) {
			must(t, unix.Mkfifo(root+"/f", 0o644))
			must(t, os.Link(root+"/f", root+"/g"))
		}, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			c.make(t, root)
			before := snapshot(t, root)
			for _, again := range []bool{false, true} {
				r, err := Place(t.Context(), layout(t, c.lines...), PlaceOptions{Root: root})
				if c.want == nil {
					if err != nil || again && r.Plan.Changed() != 0 {
						t.Fatalf("Place, again %v: %v, expected no objection", again, err)
					}
					continue
				}
				var unsafe *UnsafePath
				if !errors.As(err, &unsafe) || unsafe.Hint() == "" {
					t.Fatalf("Place: %v: expected an unsafe path", err)
				}
				for _, want := range c.want {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("Place: %v: expected …%s…", err, want)
					}
				}
				untouched(t, root, before)
			}
		})
	}
}

// A layout that leads from a user's directory to another's is refused the first time, not only when it is there.
func TestALayoutWithAnUnsafeStepIsNeverPlaced(t *testing.T) {
	needRoot(t)
	root := t.TempDir()
	l := layout(t, "dir /a 0755", "dir /a/b 0755")
	l.Nodes[0].UID = 1111
	_, err := Place(t.Context(), l, PlaceOptions{Root: root})
	if !errors.As(err, new(*UnsafePath)) || !strings.Contains(err.Error(), "user 1111") {
		t.Errorf("Place: %v: expected an unsafe path", err)
	}
	untouched(t, root, snapshot(t, root))
	l.Nodes[1].UID = 1111
	place(t, l, root)
	if r := place(t, l, root); r.Plan.Changed() != 0 {
		t.Errorf("second run: %d changed", r.Plan.Changed())
	}
}

func TestOwnersByName(t *testing.T) {
	needRoot(t)
	root := t.TempDir()
	write(t, root+"/etc/passwd", "# ours\nroot:x:0:0::/:/bin/sh\n\netcd:x:1234:77::/:/bin/false\n")
	write(t, root+"/etc/group", "root:x:0:\nlogs:x:4321:etcd,root\n")
	l := layout(t, "dir /d 0750", "fifo /f 0640")
	l.Nodes[0].User, l.Nodes[0].Group = "etcd", "logs"
	l.Nodes[1].Group = "logs"
	l.Declaration = l.Digest()
	r := place(t, l, root)
	if d, f := r.Manifest.Nodes[0], r.Manifest.Nodes[1]; d.UID != 1234 || d.GID != 4321 || d.User != "etcd" || f.UID != 0 || f.GID != 4321 {
		t.Errorf("the manifest says %+v, %+v", d, f)
	}
	var st unix.Stat_t
	must(t, unix.Lstat(root+"/d", &st))
	if st.Uid != 1234 || st.Gid != 4321 {
		t.Errorf("owner %d:%d", st.Uid, st.Gid)
	}
	if r := place(t, l, root); r.Plan.Changed() != 0 || r.Written {
		t.Error("the second run changes something")
	}
	as, err := ReadLayout(DefaultManifest(root)) // a manifest as a layout: the same declaration
	must(t, err)
	if as.Digest() != l.Declaration {
		t.Error("the numbers of named owners count in the declaration")
	}

	before := snapshot(t, root)
	l.Nodes[0].User, l.Nodes[1].Group = "nosuch", "nogroup"
	_, err = Place(t.Context(), l, PlaceOptions{Root: root})
	for _, want := range []string{`place node d: find "nosuch" in "` + root + `/etc/passwd"`, `place node f: find "nogroup"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Place: %v: expected …%s…", err, want)
		}
	}
	untouched(t, root, before)
}

func TestAccountsAreReadStrictly(t *testing.T) {
	for text, want := range map[string]string{
		"a:x:1:1::/:/bin/sh\n":                     "",
		"a:x:1:1::/:/bin/sh\na:x:1:1::/:/b\n":      "",
		"a:x:1:1::/:/bin/sh\na:x:2:1::/:/b\n":      "line 2",
		"a:x:1:1::/\n":                             "line 1",
		"a:x:-1:1::/:/bin/sh\n":                    "line 1",
		"a:x:+1:1::/:/bin/sh\n":                    "line 1",
		"a:x: 1:1::/:/bin/sh\n":                    "line 1",
		"a:x:4294967295:1::/:/bin/sh\n":            "line 1",
		"a:x:99999999999:1::/:/bin/sh\n":           "line 1",
		"a:x::1::/:/bin/sh\n":                      "line 1",
		"+::::::\n":                                "line 1",
		":x:1:1::/:/bin/sh\n":                      "line 1",
		"7:x:1:1::/:/bin/sh\n":                     "line 1",
		"a b:x:1:1::/:/bin/sh\n":                   "line 1",
		"# c\n\nA.b-c_9$:x:4294967294:1::/:/bin/x": "",
	} {
		_, err := parseAccounts(strings.NewReader(text), 7)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v: expected %q", text, err, want)
		}
	}
}

func FuzzAccounts(f *testing.F) {
	f.Add("a:x:1:1::/:/bin/sh\n")
	f.Fuzz(func(t *testing.T, text string) {
		ids, err := parseAccounts(strings.NewReader(text), 7)
		for name, id := range ids {
			if err == nil && (badAccount(name) || id < 0 || id >= 1<<32-1) {
				t.Errorf("%q is %d", name, id)
			}
		}
	})
}
