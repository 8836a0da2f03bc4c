package units

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"

	"seedbed/storage"
)

// Directory is where Install writes: the administrator's directory and not /usr/lib/systemd/system, since it is
// writable on hosts whose /usr is not, and since `systemctl disable` and `systemctl revert` know it. An image whose
// vendor directory is wanted puts the output of `units show` there.
const Directory = "/etc/systemd/system"

// Conflict says that something else than a regular file stands where a unit goes: a mask (a link to /dev/null), a
// link to a unit that lies elsewhere, a directory. It is the administrator's, and is left alone.
type Conflict struct{ Path, Found string }

func (e *Conflict) Error() string {
	return fmt.Sprintf("install unit %s: found %s: expected a regular file or nothing", e.Path, e.Found)
}

// Hint says what lets the installation go on.
func (e *Conflict) Hint() string {
	return "remove it (systemctl unmask, if it is a mask), and put your own settings into " + e.Path + ".d/*.conf"
}

// Install writes the units into Directory under root, each file whole or not at all, and with enable makes the links
// that their [Install] sections ask for, as `systemctl enable` would, which needs a running system. It returns what it
// changed, as paths inside root: nothing when all was there. Settings of the administrator belong into drop-ins
// (NAME.d/*.conf), which it does not touch; it never follows a link out of root.
//
// The error is *Conflict when something else stands in a unit's place (nothing is written then), *BadParam, or the
// operating system's.
func Install(root string, p Params, enable bool) ([]string, error) {
	wanted, err := renderAll(p)
	if err != nil {
		return nil, err
	}
	at, err := os.OpenRoot(root)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	i := installer{root: at}
	if err := i.findConflicts(wanted); err != nil {
		return nil, err
	}
	err = i.install(wanted, enable)
	return i.changed, err
}

// rendered is a unit as it is to be installed.
type rendered struct {
	name string
	text []byte
}

func renderAll(p Params) ([]rendered, error) {
	var all []rendered
	for _, name := range Names() {
		text, err := Render(name, p)
		if err != nil {
			return nil, err
		}
		all = append(all, rendered{name, text})
	}
	return all, nil
}

// installer writes below root, by paths that are absolute in it, and keeps what it changed.
type installer struct {
	root    *os.Root
	changed []string
}

// in returns an absolute path of the root in the form that os.Root takes.
func in(absolute string) string { return strings.TrimPrefix(absolute, "/") }

func (i *installer) findConflicts(wanted []rendered) error {
	var conflicts []error
	for _, u := range wanted {
		file := path.Join(Directory, u.name)
		info, err := i.root.Lstat(in(file))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		case !info.Mode().IsRegular():
			conflicts = append(conflicts, &Conflict{Path: file, Found: i.describe(file, info)})
		}
	}
	return errors.Join(conflicts...)
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
	if err := i.mkdir(Directory); err != nil {
		return err
	}
	for _, u := range wanted {
		if err := i.write(path.Join(Directory, u.name), u.text); err != nil {
			return err
		}
	}
	if !enable {
		return nil
	}
	for _, u := range wanted {
		if err := i.enable(u); err != nil {
			return err
		}
	}
	return nil
}

// mkdir makes dir and its missing parents, with mode 0755 whatever the umask is.
func (i *installer) mkdir(dir string) error {
	if dir == "/" {
		return nil
	}
	if err := i.mkdir(path.Dir(dir)); err != nil {
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
	found, err := i.root.ReadFile(in(file))
	if err == nil && bytes.Equal(found, text) {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	dir, err := i.root.Open(in(path.Dir(file)))
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
	targets, err := wantedBy(u)
	if err != nil {
		return err
	}
	for _, target := range targets {
		if err := i.link(u.name, path.Join(Directory, target+".wants")); err != nil {
			return err
		}
	}
	return nil
}

// wantedBy returns the units that the WantedBy= settings of the unit's [Install] section name.
func wantedBy(u rendered) ([]string, error) {
	options, err := unit.DeserializeOptions(bytes.NewReader(u.text))
	if err != nil {
		return nil, fmt.Errorf("read unit %s: %w", u.name, err)
	}
	var targets []string
	for _, o := range options {
		if o.Section == "Install" && o.Name == "WantedBy" {
			targets = append(targets, strings.Fields(o.Value)...)
		}
	}
	return targets, nil
}

func (i *installer) link(name, wants string) error {
	if err := i.mkdir(wants); err != nil {
		return err
	}
	link := path.Join(wants, name)
	switch err := i.root.Symlink("../"+name, in(link)); {
	case errors.Is(err, fs.ErrExist):
		return nil
	case err != nil:
		return err
	}
	i.changed = append(i.changed, link)
	return i.sync(wants)
}
