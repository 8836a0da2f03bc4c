package daemon

import (
	"fmt"
	"os"
	"path/filepath"
)

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

// OldShim says that a runtime's shim is of containerd 1 and containerd is not. A shim of 1.6 fails at each start with
// 2.3 and later, which tell it more than it understands.
type OldShim struct {
	// Runtime is its name in the configuration, Path the shim.
	Runtime, Path string
}

func (e *OldShim) Error() string {
	return fmt.Sprintf("find shim of runtime %q: %q is of containerd 1: expected one of containerd 2", e.Runtime, e.Path)
}

// Hint says what to do about it.
func (e *OldShim) Hint() string {
	return "bring containerd's own shim beside it, or in the directory that comes first in its PATH: containers may not start with this one"
}

// checkShims looks where containerd will look: in the PATH of the child, and
// beside containerd itself.
func checkShims(c *configFile, o Options) []error {
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
		found := inDirs(dirs, filepath.Base(shim.program))
		switch {
		case found == "":
			errs = append(errs, &MissingShim{shim.runtime, shim.program, path})
		case newestConfig(found) == 2 && newestConfig(self) != 2:
			errs = append(errs, &OldShim{shim.runtime, found})
		}
	}
	return errs
}

// inDirs returns the path of the first program of that name, "" if there is none.
func inDirs(dirs []string, program string) string {
	for _, dir := range dirs {
		path := filepath.Join(dir, program)
		info, err := os.Stat(path)
		if err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}
