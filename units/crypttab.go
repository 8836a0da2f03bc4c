package units

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// table returns the lines of crypttab(5) or fstab(5) in their fields, without comments.
func table(text []byte) [][]string {
	var lines [][]string
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 && !strings.HasPrefix(fields[0], "#") {
			lines = append(lines, fields)
		}
	}
	return lines
}

// FindUnlock returns what opens the disks in the system under root, as Params has it: what its crypttab says of one of
// them, "" where it says nothing.
func FindUnlock(root string, disks []Disk) string {
	t, done, err := openTree(root)
	if err != nil {
		return ""
	}
	defer done()
	text, err := t.read(crypttab)
	if err != nil {
		return ""
	}
	for _, line := range table(text) {
		if slices.ContainsFunc(disks, func(d Disk) bool { name, _ := d.mapping(); return d.encrypted() && name == line[0] }) {
			return unlockOf(line)
		}
	}
	return ""
}

// unlockOf returns what a line of crypttab opens its device with: a TPM2, a key file, or "" for something else.
func unlockOf(line []string) string {
	line = append(line, "", "")
	switch key := line[2]; {
	case slices.ContainsFunc(strings.Split(line[3], ","), func(o string) bool { return strings.HasPrefix(o, "tpm2-device=") }):
		return TPM2
	case path.IsAbs(key):
		return key
	}
	return ""
}

// crypttab returns the file with the encrypted disks' lines, if it is to be written: it is not there, or seedbed wrote
// it. In one of the administrator's the lines have to be there; it is never changed.
func (t *tree) crypttab(p Params) ([]rendered, error) {
	text, err := t.read(crypttab)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	ours := err != nil || strings.HasPrefix(string(text), written)
	found, wanted := table(text), written
	var conflicts []error
	for _, d := range p.Disks {
		if !d.encrypted() {
			continue
		}
		line := p.cryptLine(&d)
		wanted += line + "\n"
		if c := compareLine(found, strings.Fields(line)); c != nil && !ours {
			conflicts = append(conflicts, c)
		}
	}
	if !ours || wanted == written {
		return nil, errors.Join(conflicts...)
	}
	return []rendered{{name: path.Base(crypttab), path: crypttab, text: []byte(wanted), marked: true}}, nil
}

// compareLine looks for a mapping's line in a crypttab of the administrator's. Its options are theirs.
func compareLine(found [][]string, want []string) error {
	c := &Conflict{Path: crypttab, Want: fmt.Sprintf("one for %s on %s", want[0], want[1]), Advice: "it is yours and left alone; its line has to be: " + strings.Join(want, " ")}
	i := slices.IndexFunc(found, func(line []string) bool { return line[0] == want[0] })
	switch {
	case i < 0:
		c.Found = "no line for " + want[0]
	case found[i][1] != want[1]:
		c.Found = fmt.Sprintf("a line for %s on %s", want[0], found[i][1])
	case unlockOf(found[i]) != unlockOf(want):
		c.Found = fmt.Sprintf("a line for %s that opens it with %q", want[0], strings.Join(found[i][2:], " "))
	default:
		return nil
	}
	return c
}

// checkFstab refuses disks that the administrator's fstab mounts too: the unit would hide that line without a word.
func (t *tree) checkFstab(p Params) error {
	text, err := t.read(fstab)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var conflicts []error
	for _, line := range table(text) {
		if slices.ContainsFunc(p.Disks, func(d Disk) bool { return path.Clean(line[1]) == d.Path }) {
			conflicts = append(conflicts, &Conflict{
				Path: fstab, Found: "a line for " + line[1], Want: "none, since the layout has it mounted by a unit",
				Advice: "remove the line, or take source and encryption of that mount out of the layout",
			})
		}
	}
	return errors.Join(conflicts...)
}
