package storage

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mounted is a file system as it is mounted in this mount namespace.
type mounted struct {
	id, parent   uint64 // those of mountinfo, or the ones that are
	unique       bool   // never used again
	fsType       string
	source       string
	root         string // what of the file system is mounted: "/", or the directory of a bind mount
	point        string
	options      []string // of the mount and of its file system
	major, minor uint32
}

// String is the type and the source, which tells one mount from another in a message.
func (m *mounted) String() string {
	if m.source == "" || m.source == m.fsType || m.source == "none" {
		return m.fsType
	}
	return m.fsType + " from " + m.source
}

// errForeignMount is the cause when a mount is in no table of this process.
var errForeignMount = errors.New("it is mounted in another mount namespace, or not below this process's root")

// mountRef is how statx(2) names the mount that a descriptor is on.
type mountRef struct {
	unique uint64 // never used again; 0 before Linux 6.8
	old    uint64 // the one of mountinfo, which may name another mount once this one is gone
	isRoot bool   // the descriptor is the root of the mount
}

// mountOf asks which mount a name below a descriptor, or with "" the descriptor itself, is on. The last mount of a
// stack is the one that is seen.
func mountOf(fd int, name string) (mountRef, error) {
	const flags = unix.AT_EMPTY_PATH | unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT
	var st unix.Statx_t
	if err := unix.Statx(fd, name, flags, unix.STATX_MNT_ID, &st); err != nil {
		return mountRef{}, err
	}
	if st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		return mountRef{}, unix.ENOSYS // before Linux 5.8
	}
	r := mountRef{old: st.Mnt_id, isRoot: st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0}
	if err := unix.Statx(fd, name, flags, unix.STATX_MNT_ID_UNIQUE, &st); err != nil {
		return mountRef{}, err
	}
	if st.Mask&unix.STATX_MNT_ID_UNIQUE != 0 {
		r.unique = st.Mnt_id
	}
	return r, nil
}

// info returns what is known of the mount: from statmount(2), or from /proc/self/mountinfo where the kernel is older
// than 6.13 or forbids the call.
func (r mountRef) info() (*mounted, error) {
	if r.unique != 0 {
		m, err := statmount(r.unique)
		switch err {
		case nil:
			return m, nil
		case unix.ENOENT:
			return nil, errForeignMount
		}
	}
	f, err := os.Open("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return findMount(f, r.old)
}

// below returns the mount that this one is mounted on when that has the same mount point: what a stack hides.
func (m *mounted) below() *mounted {
	r := mountRef{old: m.parent}
	if m.unique {
		r = mountRef{unique: m.parent}
	}
	parent, err := r.info()
	if err != nil || parent.point != m.point || parent.id == m.id {
		return nil
	}
	return parent
}

// isOn reports whether the mount is mounted directly on the one of the reference.
func (m *mounted) isOn(r mountRef) bool {
	if m.unique {
		return m.parent == r.unique
	}
	return m.parent == r.old
}

// statmount(2), linux/mount.h. A field is only there when its bit is in the answer's mask.
const (
	statmountSBBasic  = 1 << 0
	statmountMntBasic = 1 << 1
	statmountMntRoot  = 1 << 3
	statmountMntPoint = 1 << 4
	statmountFSType   = 1 << 5
	statmountMntOpts  = 1 << 7
	statmountSBSource = 1 << 9 // Linux 6.13, the youngest of these
	statmountWanted   = statmountSBBasic | statmountMntBasic | statmountMntRoot | statmountMntPoint | statmountFSType | statmountMntOpts | statmountSBSource
	statmountStrings  = 512 // where struct statmount ends and its strings begin
	statmountBuffer   = 64 << 10
	mountRequestSize  = 24
)

// statmount asks the kernel for one mount by its unique id. A kernel that does not tell all that is wanted gives
// ENOSYS, as one without the call does.
func statmount(id uint64) (*mounted, error) {
	request := struct {
		size, spare uint32
		id, mask    uint64
	}{mountRequestSize, 0, id, statmountWanted}
	buf := make([]byte, statmountBuffer)
	_, _, e := unix.Syscall6(unix.SYS_STATMOUNT, uintptr(unsafe.Pointer(&request)),
		uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)), 0, 0, 0)
	if e != 0 {
		return nil, e
	}
	at := binary.NativeEndian
	if got := at.Uint64(buf[8:]); got&statmountWanted != statmountWanted {
		return nil, unix.ENOSYS
	}
	text := func(offset int) string {
		s := buf[statmountStrings+int(at.Uint32(buf[offset:])):]
		return string(s[:max(bytes.IndexByte(s, 0), 0)])
	}
	m := &mounted{
		id: at.Uint64(buf[40:]), parent: at.Uint64(buf[48:]), unique: true,
		major: at.Uint32(buf[16:]), minor: at.Uint32(buf[20:]),
		fsType: text(36), root: text(104), point: text(108), source: text(124),
	}
	m.options = append(attributeOptions(at.Uint64(buf[64:])), superOptions(at.Uint32(buf[32:]))...)
	m.options = append(m.options, options(text(4))...)
	return m, nil
}

// attribute is a mount option that belongs to the mount and not to its file system: mount_setattr(2).
type attribute struct {
	option string
	bit    uint64
}

// attributes returns the mount options that are attributes of a mount.
func attributes() []attribute {
	return []attribute{
		{"ro", unix.MOUNT_ATTR_RDONLY},
		{"nosuid", unix.MOUNT_ATTR_NOSUID},
		{"nodev", unix.MOUNT_ATTR_NODEV},
		{"noexec", unix.MOUNT_ATTR_NOEXEC},
		{"noatime", unix.MOUNT_ATTR_NOATIME},
		{"strictatime", unix.MOUNT_ATTR_STRICTATIME},
		{"nodiratime", unix.MOUNT_ATTR_NODIRATIME},
		{"nosymfollow", unix.MOUNT_ATTR_NOSYMFOLLOW},
	}
}

// attributeOptions puts the attributes of a mount into the words of mountinfo.
func attributeOptions(bits uint64) []string {
	words := []string{}
	if bits&unix.MOUNT_ATTR_RDONLY == 0 {
		words = append(words, "rw")
	}
	for _, a := range attributes() {
		if bits&a.bit != 0 {
			words = append(words, a.option)
		}
	}
	if bits&unix.MOUNT_ATTR__ATIME == unix.MOUNT_ATTR_RELATIME {
		words = append(words, "relatime")
	}
	return words
}

// superOptions puts the flags of a file system into words.
func superOptions(flags uint32) []string {
	var words []string
	for _, f := range []struct {
		word string
		bit  uint32
	}{{"ro", unix.MS_RDONLY}, {"sync", unix.MS_SYNCHRONOUS}, {"dirsync", unix.MS_DIRSYNC}, {"lazytime", unix.MS_LAZYTIME}} {
		if flags&f.bit != 0 {
			words = append(words, f.word)
		}
	}
	return words
}

// findMount looks for a mount in a table in the form of /proc/self/mountinfo (proc_pid_mountinfo(5)).
func findMount(table io.Reader, id uint64) (*mounted, error) {
	lines := bufio.NewScanner(table)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		m, err := parseMount(lines.Text())
		if err != nil {
			return nil, err
		}
		if m.id == id {
			return m, nil
		}
	}
	return nil, errors.Join(lines.Err(), errForeignMount)
}

// parseMount reads one line of mountinfo: id, parent, major:minor, root, mount point, options, optional fields, a dash,
// type, source, options of the file system.
func parseMount(line string) (*mounted, error) {
	mount, super, ok := strings.Cut(line, " - ")
	f, s := strings.Fields(mount), strings.Split(super, " ")
	if !ok || len(f) < 6 || len(s) < 3 {
		return nil, fmt.Errorf("read mountinfo: found %q: expected ten fields or more", line)
	}
	m := &mounted{root: unescape(f[3]), point: unescape(f[4]), fsType: s[0], source: unescape(s[1])}
	var err1, err2, err3 error
	m.id, err1 = strconv.ParseUint(f[0], 10, 64)
	m.parent, err2 = strconv.ParseUint(f[1], 10, 64)
	_, err3 = fmt.Sscanf(f[2], "%d:%d", &m.major, &m.minor)
	m.options = options(f[5])
	for _, o := range options(s[2]) {
		if !slices.Contains(m.options, o) {
			m.options = append(m.options, o)
		}
	}
	return m, errors.Join(err1, err2, err3)
}

// unescape turns the octal escapes of mountinfo (space, tab, newline, backslash) back.
func unescape(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+3 < len(text) {
			if v, err := strconv.ParseUint(text[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(v))
				i += 3
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}
