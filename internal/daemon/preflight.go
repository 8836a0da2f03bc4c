package daemon

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"seedbed/logpump"
)

// Finding is one thing that [Preflight] noticed.
type Finding struct {
	// Check names what was looked at: user, binary, config, directory, socket, fifo,
	// database, shim, overlay.
	Check string
	// Err says what is wrong. Its type is one of this package's, or
	// *logpump.NotFIFO, or an *fs.PathError.
	Err error
	// Warning says that containerd would start nevertheless.
	Warning bool
}

// MissingDir says that a directory of the placed tree is not there.
type MissingDir struct {
	Path string
	// For is what it is needed for.
	For string
	// Err is the cause.
	Err error
}

func (e *MissingDir) Error() string {
	return fmt.Sprintf("use %q for %s: %v", e.Path, e.For, e.Err)
}

// Unwrap returns the cause.
func (e *MissingDir) Unwrap() error { return e.Err }

// Hint says what to do about it.
func (e *MissingDir) Hint() string { return "run `seedbed storage place`" }

// NotRoot says that this process is not root's. It unwraps to [fs.ErrPermission].
type NotRoot struct{ User int }

func (e *NotRoot) Error() string {
	return fmt.Sprintf("run containerd: found user %d: expected root, which mounts and changes owners", e.User)
}

// Unwrap returns fs.ErrPermission.
func (e *NotRoot) Unwrap() error { return fs.ErrPermission }

// Hint says what to do about it.
func (e *NotRoot) Hint() string { return "run it as root" }

// NoOverlay says that the kernel does not list overlayfs.
type NoOverlay struct{}

func (e *NoOverlay) Error() string {
	return "find overlay file system: the kernel does not list it"
}

// Hint says what to do about it.
func (e *NoOverlay) Hint() string {
	return "`modprobe overlay` may bring it; without it containerd's CRI plugin is not loaded"
}

// Preflight looks at everything that a start of containerd with o depends on, changes nothing,
// and returns what is wrong, in the order in which a start would meet it. What only root may look at is
// left out for another user, about whom there is a finding.
func Preflight(o Options) []Finding {
	var found findingList
	if o.User != 0 {
		found.fatal("user", &NotRoot{o.User})
	}
	found.fatal("binary", checkBinary(o.Binary.Path))
	c, err := loadConfig(o)
	found.fatal("config", err)
	for _, dir := range []struct{ path, use string }{
		{o.Root, "containerd's data"}, {filepath.Dir(o.Address), "containerd's socket"}, {o.TempDir, "temporary files"},
	} {
		if dir.path != "" {
			found.fatal("directory", checkDir(dir.path, dir.use))
		}
	}
	found.fatal("socket", checkSocket(o.Address))
	found.fatal("fifo", checkFIFO(o))
	if c != nil {
		found.fatal("config", checkVersion(o.Binary.Path, c, o.ConfigFile))
		for _, err := range mismatches(c, o) {
			found.fatal("config", err)
		}
		found.fatal("database", checkDatabase(c.Root))
		for _, err := range checkShims(c, o) {
			found.warn("shim", err)
		}
	}
	found.warn("overlay", checkOverlay("/proc/filesystems"))
	if o.User != 0 {
		found = slices.DeleteFunc(found, func(f Finding) bool {
			return f.Check != "user" && errors.Is(f.Err, fs.ErrPermission)
		})
	}
	return found
}

// findingList collects what is wrong; nil errors are none.
type findingList []Finding

// fatal adds an error, unless another one says it already: that a directory above is missing, or that the same process
// is in the way.
func (f *findingList) fatal(check string, err error) {
	if err != nil && !slices.ContainsFunc(*f, func(known Finding) bool { return implies(known.Err, err) }) {
		*f = append(*f, Finding{Check: check, Err: err})
	}
}

// implies reports whether who knows the one error knows the other.
func implies(known, err error) bool {
	var above, below *MissingDir
	if errors.As(known, &above) && errors.As(err, &below) {
		return below.Path == above.Path || strings.HasPrefix(below.Path, above.Path+"/")
	}
	var first, second *InUse
	return errors.As(known, &first) && errors.As(err, &second) && first.PID != 0 && first.PID == second.PID
}

func (f *findingList) warn(check string, err error) {
	if err != nil {
		*f = append(*f, Finding{Check: check, Err: err, Warning: true})
	}
}

// PreflightError holds the findings that keep containerd from being started; it
// unwraps to their errors.
type PreflightError struct{ Findings []Finding }

func (e *PreflightError) Error() string { return errors.Join(e.Unwrap()...).Error() }

// Unwrap returns the errors of the findings.
func (e *PreflightError) Unwrap() []error {
	errs := make([]error, len(e.Findings))
	for i, f := range e.Findings {
		errs[i] = f.Err
	}
	return errs
}

// Hint says what to do about it.
func (e *PreflightError) Hint() string {
	var advice interface{ Hint() string }
	switch {
	case len(e.Findings) > 1:
		return "`seedbed containerd check` says of each what to do about it"
	case errors.As(e.Findings[0].Err, &advice):
		return advice.Hint()
	}
	return ""
}

// preflight returns a *PreflightError if something keeps containerd from being started.
func preflight(o Options) error {
	fatal := slices.DeleteFunc(Preflight(o), func(f Finding) bool { return f.Warning })
	if len(fatal) == 0 {
		return nil
	}
	return &PreflightError{fatal}
}

func checkDir(path, use string) error {
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		err = errors.New("it is no directory")
	}
	if err != nil {
		var at *fs.PathError
		if errors.As(err, &at) {
			err = at.Err
		}
		return &MissingDir{Path: path, For: use, Err: err}
	}
	return nil
}

// mismatches returns where the configuration disagrees with the manifest: what preseeds images, reads logs
// and waits for readiness would look for another containerd.
func mismatches(c *configFile, o Options) []error {
	var errs []error
	for _, p := range []struct{ what, config, manifest string }{
		{"root", c.Root, o.Root}, {"state", c.State, o.State}, {"gRPC address", c.address(), o.Address},
	} {
		if p.manifest != "" && filepath.Clean(p.config) != filepath.Clean(p.manifest) {
			err := fmt.Errorf("the %s is %q, the manifest's is %q", p.what, p.config, p.manifest)
			errs = append(errs, &ConfigError{Path: o.ConfigFile, Err: err})
		}
	}
	return errs
}

// checkFIFO accepts a FIFO and nothing; Run makes it then.
func checkFIFO(o Options) error {
	if o.RunscFIFO == "" {
		return nil
	}
	if err := checkDir(filepath.Dir(o.RunscFIFO), "runsc's log"); err != nil {
		return err
	}
	err := logpump.CheckFIFO(o.RunscFIFO)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// checkOverlay says whether the kernel knows overlayfs at the moment.
func checkOverlay(filesystems string) error {
	f, err := os.Open(filesystems)
	if err != nil {
		return err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 0 && fields[len(fields)-1] == "overlay" {
			return nil
		}
	}
	return &NoOverlay{}
}
