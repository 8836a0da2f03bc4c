// Package units holds seedbed's systemd units: the files as they are installed, for a node's layout. Start reading
// with seedbed.target.
//
// Render puts other paths into them, Install writes them, Check lets systemd verify them.
package units

import (
	"cmp"
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

//go:embed *.service *.socket *.target
var files embed.FS

// Names returns the units in the order in which they start; the target, which groups them, is the last. A
// name with @ is a template, of which nothing starts by itself.
func Names() []string {
	return []string{
		"seedbed-storage.service",
		"seedbed-runsc-log.socket",
		"seedbed-containerd.service",
		"seedbed-preseed.service",
		"seedbed-log@.service",
		"seedbed.target",
	}
}

// Params are what may differ in the units from host to host. The zero value gives the files as they are embedded:
// the node's layout and /usr/bin/seedbed. Every path is absolute, as the host sees it when it runs.
type Params struct {
	Binary string // seedbed; /usr/bin/seedbed
	Layout string // what `storage place` places: a built-in layout or a file; node
	Paths
	Disks  []Disk // what is mounted at the boot; nothing
	Unlock string // what opens an encrypted disk: TPM2, or a key file's path; TPM2
}

// Paths are the nodes of the layout that the service manager has to know by itself.
type Paths struct {
	ContainerdRoot  string // data.containerd, which needs its file system mounted; /data/containerd
	ContainerdState string // ephemeral.containerd; /ephemeral/containerd
	RunscLogsFIFO   string // ephemeral.containerd.runsc_logs_fifo; /ephemeral/containerd/runsc-logs.fifo
	Temp            string // ephemeral.containerd.tmp, the one directory that preseed writes to; /ephemeral/containerd/tmp
	Preseed         string // system.preseed; /containerd/preseed
}

// node are the values that stand in the embedded files.
func node() Params {
	return Params{
		Binary: "/usr/bin/seedbed",
		Layout: "node",
		Paths: Paths{
			ContainerdRoot:  "/data/containerd",
			ContainerdState: "/ephemeral/containerd",
			RunscLogsFIFO:   "/ephemeral/containerd/runsc-logs.fifo",
			Temp:            "/ephemeral/containerd/tmp",
			Preseed:         "/containerd/preseed",
		},
	}
}

func (p Params) withDefaults() Params {
	n := node()
	return Params{
		Binary: cmp.Or(p.Binary, n.Binary),
		Layout: cmp.Or(p.Layout, n.Layout),
		Paths: Paths{
			ContainerdRoot:  cmp.Or(p.ContainerdRoot, n.ContainerdRoot),
			ContainerdState: cmp.Or(p.ContainerdState, n.ContainerdState),
			RunscLogsFIFO:   cmp.Or(p.RunscLogsFIFO, n.RunscLogsFIFO),
			Temp:            cmp.Or(p.Temp, n.Temp),
			Preseed:         cmp.Or(p.Preseed, n.Preseed),
		},
		Disks:  p.Disks,
		Unlock: cmp.Or(p.Unlock, TPM2),
	}
}

// FindBinary returns the seedbed that the units of the system under root should start, as that system sees it:
// /usr/bin/seedbed, or /usr/local/bin/seedbed where only that is there.
func FindBinary(root string) string {
	preferred, local := node().Binary, "/usr/local/bin/seedbed"
	if isExecutable(filepath.Join(root, preferred)) || !isExecutable(filepath.Join(root, local)) {
		return preferred
	}
	return local
}

// HasBinary reports whether the program that the units start is there in the system under root.
func HasBinary(root string, p Params) bool {
	return isExecutable(filepath.Join(root, p.withDefaults().Binary))
}

func isExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// UnknownUnit says that there is no unit of that name.
type UnknownUnit struct{ Name string }

func (e *UnknownUnit) Error() string {
	return fmt.Sprintf("find unit %q: seedbed has no such unit", e.Name)
}

// Hint names the units that there are.
func (e *UnknownUnit) Hint() string { return "the units are " + strings.Join(Names(), ", ") }

// BadParam says that a value cannot stand in a unit file.
type BadParam struct{ Field, Value, Reason string }

func (e *BadParam) Error() string {
	return fmt.Sprintf("render units: %s %q: %s", e.Field, e.Value, e.Reason)
}

// Render returns one unit's file. The error is *UnknownUnit, or *BadParam for a path that is not absolute or holds a
// character that means something in unit files (systemd.syntax(7), systemd.unit(5) on specifiers).
func Render(name string, p Params) ([]byte, error) {
	text, err := files.ReadFile(name)
	if err != nil {
		return nil, &UnknownUnit{Name: name}
	}
	p = p.withDefaults()
	if err := p.validate(); err != nil {
		return nil, err
	}
	return []byte(p.replacer().Replace(string(text))), nil
}

// replacer puts p's values in the place of the node's. What begins with another value stands before it.
func (p Params) replacer() *strings.Replacer {
	n := node()
	place := n.Binary + " storage place"
	placeLayout := p.Binary + " storage place"
	if p.Layout != n.Layout {
		placeLayout += " --layout " + p.Layout
	}
	return strings.NewReplacer(
		place, placeLayout,
		n.Binary, p.Binary,
		n.RunscLogsFIFO, p.RunscLogsFIFO,
		n.Temp, p.Temp,
		n.ContainerdState, p.ContainerdState,
		n.ContainerdRoot, p.ContainerdRoot,
		n.Preseed, p.Preseed,
	)
}

func (p Params) validate() error {
	for _, v := range []struct{ field, value string }{
		{"binary", p.Binary},
		{"containerd root", p.ContainerdRoot},
		{"containerd state", p.ContainerdState},
		{"runsc log FIFO", p.RunscLogsFIFO},
		{"temporary directory", p.Temp},
		{"preseed directory", p.Preseed},
	} {
		if !filepath.IsAbs(v.value) || filepath.Clean(v.value) != v.value {
			return &BadParam{v.field, v.value, "expected an absolute path without . and .."}
		}
		if reason := unfit(v.value); reason != "" {
			return &BadParam{v.field, v.value, reason}
		}
	}
	if reason := unfit(p.Layout); reason != "" || strings.HasPrefix(p.Layout, "-") {
		return &BadParam{"layout", p.Layout, cmp.Or(reason, "expected a name or a file, not a flag")}
	}
	return p.validateDisks()
}

// unfit says why a value cannot stand in a unit file as it is, or "". The settings that take these values differ in
// what they quote, so that a character which one of them takes for its own is refused for all.
func unfit(value string) string {
	if len(value) >= unix.PathMax || !utf8.ValidString(value) {
		return fmt.Sprintf("expected UTF-8 of less than %d bytes", unix.PathMax)
	}
	for _, r := range value {
		switch {
		case unicode.IsSpace(r) || unicode.IsControl(r):
			return fmt.Sprintf("holds %q: expected no space and no control character", r)
		case strings.ContainsRune(`"'\%$;`, r):
			return fmt.Sprintf("holds %q, which means something in unit files", r)
		}
	}
	return ""
}
