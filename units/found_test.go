package units

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// put writes a file into a root, with its parents.
func put(t *testing.T, root, file, text string) {
	t.Helper()
	file = filepath.Join(root, file)
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// symlink makes a link in a root, with its parents.
func symlink(t *testing.T, root, target, link string) {
	t.Helper()
	link = filepath.Join(root, link)
	if err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o755), os.Symlink(target, link)); err != nil {
		t.Fatal(err)
	}
}

// find returns what Find says of one unit.
func find(t *testing.T, root, name string) Found {
	t.Helper()
	all, err := Find(root, Params{})
	if err != nil {
		t.Fatal(err)
	}
	return all[slices.IndexFunc(all, func(f Found) bool { return f.Name == name })]
}

func TestFind(t *testing.T) {
	const unit, vendor = "seedbed-preseed.service", "/usr/lib/systemd/system/seedbed-preseed.service"
	shipped := string(render(t, unit, Params{}))
	for _, test := range []struct {
		name string
		put  func(root string)
		want State
		path string
		ins  []string
	}{
		{"nothing", func(string) {}, Absent, "", nil},
		{"as shipped", func(root string) { put(t, root, Directory+"/"+unit, shipped) }, Shipped, Directory + "/" + unit, nil},
		{"edited", func(root string) { put(t, root, Directory+"/"+unit, shipped+"#\n") }, Edited, Directory + "/" + unit, nil},
		{"by the vendor", func(root string) { put(t, root, vendor, shipped) }, Shipped, vendor, nil},
		{"the administrator's hides the vendor's", func(root string) {
			put(t, root, vendor, shipped)
			put(t, root, Directory+"/"+unit, "[Unit]\n")
		}, Edited, Directory + "/" + unit, nil},
		{"masked", func(root string) {
			put(t, root, vendor, shipped)
			symlink(t, root, "/dev/null", Directory+"/"+unit)
		}, Masked, Directory + "/" + unit, nil},
		{"drop-ins, of one name only the first", func(root string) {
			put(t, root, vendor+".d/a.conf", "[Unit]\n")
			put(t, root, Directory+"/"+unit+".d/a.conf", "[Unit]\n")
			put(t, root, Directory+"/"+unit+".d/a.txt", "not a drop-in\n")
			put(t, root, vendor+".d/b.conf", "[Unit]\n")
		}, Absent, "", []string{Directory + "/" + unit + ".d/a.conf", vendor + ".d/b.conf"}},
		{"through a link that is absolute in the root", func(root string) {
			symlink(t, root, "/srv/units", Directory)
			put(t, root, "/srv/units/"+unit, shipped)
		}, Shipped, Directory + "/" + unit, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := t.TempDir()
			test.put(root)
			got := find(t, root, unit)
			if got.File != test.want || got.Path != test.path || !slices.Equal(got.DropIns, test.ins) {
				t.Errorf("got %s %q %q, want %s %q %q", got.File, got.Path, got.DropIns, test.want, test.path, test.ins)
			}
		})
	}
}

func TestInstalledLayout(t *testing.T) {
	root := t.TempDir()
	if got := InstalledLayout(root); got != "" {
		t.Errorf("nothing installed: %q", got)
	}
	for _, layout := range []string{"node", "fhs", "/etc/seedbed/layout.json"} {
		install(t, root, Params{Layout: layout}, false)
		if got := InstalledLayout(root); got != layout {
			t.Errorf("got %q, want %q", got, layout)
		}
	}
}

// What was edited, and what drop-ins say, is verified too, and named by its path in the root.
func TestCheckFound(t *testing.T) {
	needAnalyze(t)
	const unit = Directory + "/seedbed-preseed.service"
	for _, test := range []struct{ name, file, text, want string }{
		{"a drop-in with an unknown setting", unit + ".d/a.conf", "[Service]\nBogus=1\n", unit + ".d/a.conf:2: Unknown key"},
		{"an edited unit without a program", unit, "[Service]\nType=notify\n", "no ExecStart="},
		{"a program that is nowhere", unit + ".d/a.conf", "[Service]\nExecStartPre=/opt/absent\n", "/opt/absent is not executable"},
		{"a program of the root", unit + ".d/a.conf", "[Service]\nExecStartPre=/opt/present\n", ""},
		{"a good drop-in", unit + ".d/a.conf", "[Service]\nTimeoutStartSec=1h\n", ""},
		{"a mask", "", "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := t.TempDir()
			install(t, root, Params{}, false)
			put(t, root, "/opt/present", "")
			if err := os.Chmod(filepath.Join(root, "/opt/present"), 0o755); err != nil {
				t.Fatal(err)
			}
			if test.file != "" {
				put(t, root, test.file, test.text)
			} else if err := errors.Join(os.Remove(filepath.Join(root, unit)), os.Symlink("/dev/null", filepath.Join(root, unit))); err != nil {
				t.Fatal(err)
			}
			found, err := Find(root, Params{})
			if err != nil {
				t.Fatal(err)
			}
			err = CheckFound(t.Context(), root, Params{}, found)
			var findings *Findings
			switch {
			case test.want == "" && err != nil:
				t.Errorf("got %v, want no complaint", err)
			case test.want != "" && (!errors.As(err, &findings) || !strings.Contains(findings.Output, test.want)):
				t.Errorf("got %v, want findings with %q", err, test.want)
			}
		})
	}
}
