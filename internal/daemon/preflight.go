package daemon

import (
	"bufio"
	"context"
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
	// Check names what was looked at: binary, config, address, socket, database,
	// directory, fifo, overlay, shim.
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

// MissingShim says that a configured runtime has no shim.
type MissingShim struct {
	// Runtime is its name in the configuration, Program the shim that was looked for, PATH where.
	Runtime, Program, PATH string
}

func (e *MissingShim) Error() string {
	return fmt.Sprintf("find shim of runtime %q: no program %q in %s", e.Runtime, e.Program, e.PATH)
}

// Hint says what to do about it.
func (e *MissingShim) Hint() string {
	return "install the shim, or take the runtime out of the configuration; containers of other runtimes are not concerned"
}

// Preflight looks at everything that a start of containerd with o depends on, changes nothing,
// and returns what is wrong, in the order in which a start would meet it.
func Preflight(o Options) []Finding {
	var found []Finding
	fatal := func(check string, err error) {
		if err != nil {
			found = append(found, Finding{Check: check, Err: err})
		}
	}
	warn := func(check string, err error) {
		if err != nil {
			found = append(found, Finding{Check: check, Err: err, Warning: true})
		}
	}
	fatal("binary", checkBinary(o.Binary.Path))
	c, err := loadConfig(o)
	fatal("config", err)
	fatal("directory", checkDir(filepath.Dir(o.Address), "containerd's socket"))
	if o.TempDir != "" {
		fatal("directory", checkDir(o.TempDir, "temporary files"))
	}
	fatal("socket", checkSocket(o.Address))
	fatal("fifo", checkFIFO(o))
	if c != nil {
		fatal("address", checkAddress(c, o))
		fatal("database", checkDatabase(c.Root))
		for _, err := range missingShims(c, o) {
			warn("shim", err)
		}
	}
	warn("overlay", checkOverlay("/proc/filesystems"))
	return found
}

// Running describes a containerd that answers at the address of o's configuration.
type Running struct {
	// PID is its process, 0 if the kernel does not tell.
	PID     int
	Version string
}

// FindRunning returns the containerd that answers at o's address, nil if none does. What it
// holds, its socket and its database, is no fault: the findings that [Preflight] has of that
// process are to be left out.
func FindRunning(ctx context.Context, o Options) *Running {
	var inUse *InUse
	if !errors.As(checkSocket(o.Address), &inUse) {
		return nil
	}
	version, err := version(ctx, o.Address)
	if err != nil {
		return nil
	}
	return &Running{PID: inUse.PID, Version: version}
}

// Holds reports whether a finding is about what r holds.
func (r *Running) Holds(f Finding) bool {
	var inUse *InUse
	return r != nil && errors.As(f.Err, &inUse) && inUse.PID == r.PID
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

func checkAddress(c *configFile, o Options) error {
	if c.address() == o.Address {
		return nil
	}
	return &ConfigError{Path: o.ConfigFile, Err: fmt.Errorf("the gRPC address is %q, the manifest's is %q", c.address(), o.Address)}
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

// missingShims looks where containerd will look: in the PATH of the child, and
// beside containerd itself.
func missingShims(c *configFile, o Options) []error {
	path := childPath(o)
	self := o.Binary.Path
	if real, err := filepath.EvalSymlinks(self); err == nil {
		self = real
	}
	var errs []error
	for _, shim := range c.shims() {
		dirs := append(filepath.SplitList(path), filepath.Dir(self))
		if filepath.IsAbs(shim.program) {
			dirs = []string{filepath.Dir(shim.program)}
		}
		if !inDirs(dirs, filepath.Base(shim.program)) {
			errs = append(errs, &MissingShim{shim.runtime, shim.program, path})
		}
	}
	return errs
}

func inDirs(dirs []string, program string) bool {
	for _, dir := range dirs {
		info, err := os.Stat(filepath.Join(dir, program))
		if err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return true
		}
	}
	return false
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
	return errors.New("find overlay file system: the kernel does not list it, `modprobe overlay` may bring it")
}
