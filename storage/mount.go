package storage

import (
	"bufio"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Mount is a mount point of the tree.
type Mount struct {
	// ID is the id of the node that is the mount point.
	ID   string `json:"id"`
	Path string `json:"path"`
	// Policy is require, make or prefer.
	Policy string `json:"policy"`
	FSType string `json:"fstype"`
	// Options are those that the mount has to have.
	Options []string `json:"options,omitempty"`
	// State is mounted, absent or ignored; a layout has none.
	State string `json:"state,omitempty"`
}

// The mount policies.
const (
	PolicyRequire = "require" // it must be a mount point of that file system
	PolicyMake    = "make"    // it is mounted when nothing is
	PolicyPrefer  = "prefer"  // it is checked when it is mounted
)

// The states of a mount in a manifest.
const (
	MountMounted = "mounted" // a file system is mounted there
	MountAbsent  = "absent"  // none is
	MountIgnored = "ignored" // nobody looked
)

// MountMode says whether mount policies are looked at.
type MountMode int

// The mount modes.
const (
	MountsAuto   MountMode = iota // apply for the root /, ignore for any other
	MountsApply                   // look at the policies
	MountsIgnore                  // every directory is an ordinary one
)

// apply resolves MountsAuto for a root.
func (m MountMode) apply(root string) bool {
	return m == MountsApply || m == MountsAuto && root == "/"
}

// mounted reports whether the directory is the root of a mounted file system, and of which type.
func (f *folder) mounted() (fsType string, ok bool, err error) {
	if f.absent {
		return "", false, nil
	}
	fd, err := f.open()
	if err != nil {
		return "", false, err
	}
	var st unix.Statx_t
	flags := unix.AT_EMPTY_PATH | unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT
	if err := unix.Statx(fd, "", flags, unix.STATX_MNT_ID, &st); err != nil {
		return "", false, f.fail("statx", "", err)
	}
	if st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0 || st.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		return "", false, nil
	}
	fsType, err = mountType(st.Mnt_id)
	return fsType, true, err
}

// mountType looks a mount id up in /proc/self/mountinfo (proc_pid_mountinfo(5)); the type stands after the lone dash.
func mountType(id uint64) (string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	defer f.Close()
	want := strconv.FormatUint(id, 10)
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		before, after, ok := strings.Cut(lines.Text(), " - ")
		first, _, _ := strings.Cut(before, " ")
		if fields := strings.Fields(after); ok && first == want && len(fields) > 0 {
			return fields[0], nil
		}
	}
	return "", lines.Err()
}

// mounts looks at every mount point of the layout, records its state, and warns where it is not as declared.
func (pl *planner) mounts() {
	pl.mountState = map[string]string{}
	for i := range pl.layout.Mounts {
		m := pl.layout.Mounts[i]
		m.State = MountIgnored
		if pl.applyMounts {
			m.State = pl.mountPoint(m)
		}
		pl.mountState[m.ID] = m.State
		pl.placedMounts = append(pl.placedMounts, m)
	}
}

// mountPoint returns the state of one mount point.
func (pl *planner) mountPoint(m Mount) string {
	dir, name, err := pl.walk.locate(m.Path)
	if err != nil {
		return MountAbsent // the node itself reports it
	}
	f, err := pl.walk.enter(dir, name, 0)
	if err != nil {
		return MountAbsent
	}
	fsType, ok, err := f.mounted()
	if err != nil {
		pl.refuse(err)
		return MountAbsent
	}
	if !ok {
		if m.Policy != PolicyPrefer {
			pl.warn("mount %s: %q is no mount point: expected %s (policy %s)", m.ID, f.host(), m.FSType, m.Policy)
		}
		return MountAbsent
	}
	if m.FSType != "" && fsType != m.FSType {
		pl.warn("mount %s: %q is %s: expected %s (policy %s)", m.ID, f.host(), fsType, m.FSType, m.Policy)
	}
	return MountMounted
}

// movedMounts gives each mount the path at which its node was found, links resolved.
func (pl *planner) movedMounts() {
	for i := range pl.placedMounts {
		m := &pl.placedMounts[i]
		node := slices.IndexFunc(pl.placed, func(n Node) bool { return n.ID == m.ID })
		m.Path = pl.placed[node].Path
	}
}
