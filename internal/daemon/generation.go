package daemon

import (
	"debug/buildinfo"
	"fmt"
	"strconv"
	"strings"
)

// VersionError says that a containerd is too old for the configuration that it would get.
type VersionError struct {
	// Path is the program, ConfigFile the configuration.
	Path, ConfigFile string
	// Version is the configuration's, Newest the newest that the program reads.
	Version, Newest int
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("run containerd %q: it reads configurations up to version %d: %q is of version %d", e.Path, e.Newest, e.ConfigFile, e.Version)
}

// Hint says what to do about it.
func (e *VersionError) Hint() string {
	return "bring a containerd of 2.3 or later, run the one inside of seedbed with --containerd " + EmbeddedName +
		", or give this one a configuration of its own"
}

// checkVersion returns a *VersionError if the program is known not to read the configuration.
func checkVersion(program string, c *configFile, configFile string) error {
	newest := newestConfig(program)
	if newest == 0 || c.Version <= newest {
		return nil
	}
	return &VersionError{Path: program, ConfigFile: configFile, Version: c.Version, Newest: newest}
}

// newestConfig returns the newest version of configurations that the containerd at path reads, 0 if the
// program does not tell. It tells by the modules that the Go linker wrote into it: containerd 1 reads up to version
// 2, 2.0 up to 3, and 2.3 up to 4 (their version.ConfigVersion).
func newestConfig(path string) int {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return 0 // a script, or not ours to read
	}
	const module = "github.com/containerd/containerd"
	if strings.HasPrefix(info.Path, module+"/cmd/") {
		return 2
	}
	version := ""
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == module+"/v2" {
			version = m.Version
		}
	}
	minor, found := strings.CutPrefix(version, "v2.")
	minor, _, _ = strings.Cut(minor, ".")
	n, err := strconv.Atoi(minor)
	switch {
	case !found || err != nil:
		return 0 // built from a checkout
	case n < 3:
		return 3
	}
	return configVersion
}
