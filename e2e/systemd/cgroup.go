package systemd

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// hierarchy is one mounted cgroup hierarchy, version 1 or 2, with the machine's directory in it.
type hierarchy struct {
	point   string // mount point: /sys/fs/cgroup/cpu
	fstype  string // cgroup or cgroup2
	options string // what mount(8) needs to mount it again: cpu, name=systemd, rw
	dir     string // the machine's own cgroup: <point>/<own cgroup>/<name>
}

// word returns the hierarchy as boot.sh takes it.
func (h hierarchy) word() string {
	return strings.Join([]string{h.point, h.fstype, h.options, h.dir}, ":")
}

// hierarchies returns those of the calling process, with the directory that a machine called name has in each:
// below the process's own cgroup for version 1, so that its limits hold for the machine too, and below the mount
// point for version 2, where a cgroup with processes has no controllers to hand on.
func hierarchies(name string) ([]hierarchy, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	return parseHierarchies(mounts, parseOwn(own), name), nil
}

// parseHierarchies picks the cgroup mounts out of mounts, which is in the form of /proc/self/mounts.
func parseHierarchies(mounts []byte, own map[string]string, name string) []hierarchy {
	var found []hierarchy
	lines := bufio.NewScanner(bytes.NewReader(mounts))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || !strings.HasPrefix(fields[1], "/sys/fs/cgroup") {
			continue
		}
		h := hierarchy{point: fields[1], fstype: fields[2]}
		switch h.fstype {
		case "cgroup2":
			h.options, h.dir = "rw", filepath.Join(h.point, name)
		case "cgroup":
			h.options = controllers(fields[3])
			h.dir = filepath.Join(h.point, own[h.options], name)
		default:
			continue
		}
		found = append(found, h)
	}
	return found
}

// controllers returns the options of a version 1 mount that say which hierarchy it is.
func controllers(options string) string {
	general := []string{"rw", "ro", "nosuid", "nodev", "noexec", "relatime", "noatime", "xattr", "clone_children"}
	named := strings.Split(options, ",")
	named = slices.DeleteFunc(named, func(o string) bool {
		return slices.Contains(general, o) || strings.HasPrefix(o, "release_agent=")
	})
	return strings.Join(named, ",")
}

// parseOwn maps each version 1 hierarchy of /proc/self/cgroup to the process's cgroup in it.
func parseOwn(data []byte) map[string]string {
	own := map[string]string{}
	for line := range strings.Lines(string(data)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) == 3 {
			own[fields[1]] = fields[2]
		}
	}
	return own
}

// makeCgroups makes the machine's cgroup in every hierarchy. A cpuset of version 1 is usable only once it has
// cpus and memory nodes, which it takes over from its parent.
func makeCgroups(all []hierarchy) error {
	for _, h := range all {
		if err := os.Mkdir(h.dir, 0o755); err != nil {
			return err
		}
		if h.fstype == "cgroup" && strings.Contains(h.options, "cpuset") {
			if err := inheritCpuset(h.dir); err != nil {
				return err
			}
		}
	}
	return nil
}

func inheritCpuset(dir string) error {
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(filepath.Dir(dir), name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), value, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// removeCgroups removes the machine's cgroups, the deepest first. The processes of a killed machine take a moment
// to leave theirs, so a busy one is tried again for up to five seconds.
func removeCgroups(all []hierarchy) error {
	deadline := time.Now().Add(5 * time.Second)
	var errs []error
	for _, h := range all {
		err := removeTree(h.dir)
		for errors.Is(err, unix.EBUSY) && time.Now().Before(deadline) {
			time.Sleep(10 * time.Millisecond)
			err = removeTree(h.dir)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// removeTree removes the cgroup dir and all below it. A cgroup's files go with it.
func removeTree(dir string) error {
	var dirs []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("list cgroup: %w", err)
	}
	for _, d := range slices.Backward(dirs) {
		if err := os.Remove(d); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
