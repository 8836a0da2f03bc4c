package units

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// State says how a unit's file stands beside the one that Install would write.
type State string

// The states of a unit's file.
const (
	Absent  State = "absent"  // there is none
	Shipped State = "shipped" // it is the one that Install would write
	Edited  State = "edited"  // it is another one: edited by hand, or of another version or layout
	Masked  State = "masked"  // it is a link to /dev/null, or empty
)

// Found is a unit as it stands in a root.
type Found struct {
	Name string `json:"name"`
	File State  `json:"file"`
	// Path is where the file stands in the root, and DropIns are the administrator's settings for it.
	Path    string   `json:"path,omitempty"`
	DropIns []string `json:"drop_ins,omitempty"`

	text    []byte // of the file
	settled []dropIn
}

// dropIn is a file of settings beside a unit.
type dropIn struct {
	path string
	text []byte
}

// loadPath is where the service manager looks for units, the first that has one wins (systemd.unit(5), "Unit File Load
// Path"; what other programs generate is left out).
func loadPath() []string {
	return []string{Directory, "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system"}
}

// Find looks for each of seedbed's units in the system under root and compares it with what Install would write for p.
// The error is *BadParam or the operating system's.
func Find(root string, p Params) ([]Found, error) {
	wanted, err := renderAll(p)
	if err != nil {
		return nil, err
	}
	t, done, err := openTree(root)
	if err != nil {
		return nil, err
	}
	defer done()
	var all []Found
	for _, u := range wanted {
		f, err := t.find(u)
		if err != nil {
			return nil, fmt.Errorf("find unit %s: %w", u.name, err)
		}
		all = append(all, f)
	}
	return all, nil
}

// find looks for one unit and its drop-ins.
func (t *tree) find(wanted rendered) (Found, error) {
	f := Found{Name: wanted.name, File: Absent}
	for _, dir := range loadPath() {
		file := path.Join(dir, wanted.name)
		text, err := t.read(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return f, err
		}
		f.Path, f.text, f.File = file, text, compare(text, wanted.text)
		break
	}
	err := t.findDropIns(&f)
	return f, err
}

func compare(got, want []byte) State {
	switch string(got) {
	case string(want):
		return Shipped
	case "":
		return Masked
	}
	return Edited
}

// findDropIns reads NAME.d/*.conf of every directory; of two with one name the first counts.
func (t *tree) findDropIns(f *Found) error {
	var names []string
	for _, dir := range loadPath() {
		dir = path.Join(dir, f.Name+".d")
		entries, err := t.list(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, name := range entries {
			if !strings.HasSuffix(name, ".conf") || slices.Contains(names, name) {
				continue
			}
			text, err := t.read(path.Join(dir, name))
			if err != nil {
				return err
			}
			names = append(names, name)
			f.DropIns = append(f.DropIns, path.Join(dir, name))
			f.settled = append(f.settled, dropIn{path.Join(dir, name), text})
		}
	}
	return nil
}

// InstalledLayout returns what the storage unit that is installed under root places, "" where none is installed: a
// built-in layout's name, or a file's path in the root.
func InstalledLayout(root string) string {
	all, err := Find(root, Params{})
	if err != nil || all[0].File == Absent {
		return ""
	}
	for line := range strings.Lines(string(all[0].text)) {
		if _, layout, ok := strings.Cut(strings.TrimSpace(line), " storage place --layout "); ok && strings.HasPrefix(line, "ExecStart=") {
			return layout
		}
	}
	return node().Layout
}
