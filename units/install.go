package units

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"

	"seedbed/storage"
)

// Directory is where Install writes: the administrator's directory and not /usr/lib/systemd/system, since it is
// writable on hosts whose /usr is not, and since `systemctl disable` and `systemctl revert` know it. An image whose
// vendor directory is wanted puts the output of `units show` there.
const Directory = "/etc/systemd/system"

// Conflict says that something stands in the way that is the administrator's, and is left alone: in a unit's place a
// mask (a link to /dev/null), a link to a unit that lies elsewhere, a directory, or a file that seedbed did not write; or a
// line of crypttab or fstab.
type Conflict struct{ Path, Found, Want, Advice string }

func (e *Conflict) Error() string {
	return fmt.Sprintf("install %s: found %s: expected %s", e.Path, e.Found, cmp.Or(e.Want, "a regular file or nothing"))
}

// Hint says what lets the installation go on.
func (e *Conflict) Hint() string {
	return cmp.Or(e.Advice, "remove it (systemctl unmask, if it is a mask), and put your own settings into "+e.Path+".d/*.conf")
}

// Install writes the units into Directory under root, each file whole or not at all, and with enable makes the links
// that their [Install] sections ask for, as `systemctl enable` would, which needs a running system. It returns what it
// changed, as paths inside root: nothing when all was there. Settings of the administrator belong into drop-ins
// (NAME.d/*.conf), which it does not touch; it never follows a link out of root.
//
// With p.Disks it also writes what brings the layout's disks up: mount units, a service that makes the encrypted
// partitions, its definitions (repart.d), and their lines in /etc/crypttab, unless that is the administrator's file.
//
// The error is *Conflict when something else stands in the way (nothing is written then), *BadParam, or the operating
// system's.
func Install(root string, p Params, enable bool) ([]string, error) {
	wanted, err := renderAll(p)
	if err != nil {
		return nil, err
	}
	t, done, err := openTree(root)
	if err != nil {
		return nil, err
	}
	defer done()
	i := installer{tree: *t}
	p = p.withDefaults()
	table, err := i.crypttab(p)
	wanted = slices.Concat(wanted, p.diskFiles(), table)
	if err := errors.Join(i.findConflicts(wanted), i.checkFstab(p), err); err != nil {
		return nil, err
	}
	err = i.install(wanted, enable)
	return i.changed, err
}

// rendered is a file as it is to be installed.
type rendered struct {
	name   string
	path   string // in the root
	text   []byte
	marked bool // its text begins with the comment that tells it from the administrator's
}

// renderAll returns all units.
func renderAll(p Params) ([]rendered, error) {
	var all []rendered
	for _, name := range Names() {
		text, err := Render(name, p)
		if err != nil {
			return nil, err
		}
		all = append(all, rendered{name: name, path: path.Join(Directory, name), text: text})
	}
	return append(all, p.withDefaults().diskUnits()...), nil
}

// Count is how many units Install writes.
func Count(p Params) int { return len(Names()) + len(p.withDefaults().diskUnits()) }

// installer writes into a root and keeps what it changed.
type installer struct {
	tree
	changed []string
}

func (i *installer) findConflicts(wanted []rendered) error {
	var conflicts []error
	for _, u := range wanted {
		dir, err := i.resolve(path.Dir(u.path))
		if err != nil {
			return fmt.Errorf("install units: %w", err)
		}
		file := path.Join(dir, path.Base(u.path))
		info, err := i.root.Lstat(in(file))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		case !info.Mode().IsRegular():
			conflicts = append(conflicts, &Conflict{Path: u.path, Found: i.describe(file, info)})
		case u.marked && i.foreign(file, u.text):
			conflicts = append(conflicts, &Conflict{
				Path: u.path, Found: "a file that seedbed did not write", Want: "its own or none",
				Advice: "move it away, or take source and encryption of the mount out of the layout",
			})
		}
	}
	return errors.Join(conflicts...)
}

// foreign reports whether a file is neither as wanted nor an earlier one of seedbed's.
func (i *installer) foreign(file string, want []byte) bool {
	got, err := i.read(file)
	return err != nil || !bytes.Equal(got, want) && !strings.HasPrefix(string(got), written)
}

func (i *installer) describe(file string, info fs.FileInfo) string {
	switch {
	case info.IsDir():
		return "a directory"
	case info.Mode()&fs.ModeSymlink == 0:
		return "a special file"
	}
	target, err := i.root.Readlink(in(file))
	if err != nil {
		return "a symbolic link"
	}
	return "a symbolic link to " + target
}

func (i *installer) install(wanted []rendered, enable bool) error {
	for _, u := range wanted {
		if err := i.write(u.path, u.text); err != nil {
			return fmt.Errorf("install %s: %w", u.path, err)
		}
	}
	if !enable {
		return nil
	}
	for _, u := range wanted {
		if err := i.enable(u); err != nil {
			return fmt.Errorf("enable unit %s: %w", u.name, err)
		}
	}
	return nil
}

// mkdir makes dir and its missing parents, with mode 0755 whatever the umask is, and returns where it is in the root.
func (i *installer) mkdir(dir string) (string, error) {
	dir, err := i.resolve(dir)
	if err != nil {
		return "", err
	}
	return dir, i.mkdirAll(dir)
}

func (i *installer) mkdirAll(dir string) error {
	if dir == "/" {
		return nil
	}
	if err := i.mkdirAll(path.Dir(dir)); err != nil {
		return err
	}
	switch err := i.root.Mkdir(in(dir), 0o755); {
	case errors.Is(err, fs.ErrExist):
		return nil
	case err != nil:
		return err
	}
	return i.root.Chmod(in(dir), 0o755)
}

// write makes file hold text, unless it does, whole or not at all.
func (i *installer) write(file string, text []byte) error {
	real, err := i.mkdir(path.Dir(file))
	if err != nil {
		return err
	}
	at := path.Join(real, path.Base(file))
	found, err := i.root.ReadFile(in(at))
	if err == nil && bytes.Equal(found, text) {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	dir, err := i.root.Open(in(real))
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := storage.WriteFileAt(dir, path.Base(file), text, 0o644); err != nil {
		return err
	}
	i.changed = append(i.changed, file)
	return nil
}

// sync waits until the directory's entries are on disk.
func (i *installer) sync(dir string) error {
	d, err := i.root.Open(in(dir))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// enable makes the links that the unit asks for. A link that is there is left as it is: systemd looks at its name only.
func (i *installer) enable(u rendered) error {
	directories, err := wantedBy(u)
	if err != nil {
		return err
	}
	for _, dir := range directories {
		if err := i.link(u.name, path.Join(Directory, dir)); err != nil {
			return err
		}
	}
	return nil
}

// wantedBy returns the directories of the links that the unit's [Install] section asks for. A template's are for its
// instances, which are the administrator's to enable.
func wantedBy(u rendered) ([]string, error) {
	if strings.Contains(u.name, "@.") || path.Dir(u.path) != Directory {
		return nil, nil
	}
	options, err := unit.DeserializeOptions(bytes.NewReader(u.text))
	if err != nil {
		return nil, fmt.Errorf("read unit %s: %w", u.name, err)
	}
	var directories []string
	for _, o := range options {
		suffix := map[string]string{"WantedBy": ".wants", "RequiredBy": ".requires"}[o.Name]
		if o.Section != "Install" || suffix == "" {
			continue
		}
		for target := range strings.FieldsSeq(o.Value) {
			directories = append(directories, target+suffix)
		}
	}
	return directories, nil
}

func (i *installer) link(name, wants string) error {
	dir, err := i.mkdir(wants)
	if err != nil {
		return err
	}
	switch err := i.root.Symlink("../"+name, in(path.Join(dir, name))); {
	case errors.Is(err, fs.ErrExist):
		return nil
	case err != nil:
		return err
	}
	i.changed = append(i.changed, path.Join(wants, name))
	return i.sync(dir)
}
