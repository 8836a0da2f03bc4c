package storage

import (
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// difference is one way in which a mount is not as wanted, and what to do about it.
type difference struct{ got, advice string }

// differences compares what is mounted at a directory with what is wanted there. Without a finding the mount will do.
func (m *Mount) differences(got *mounted, fd int) []difference {
	var all []difference
	add := func(advice, format string, args ...any) {
		all = append(all, difference{fmt.Sprintf(format, args...), advice})
	}
	if m.FSType != "" && got.fsType != m.FSType {
		advice := fmt.Sprintf("mount the %s there instead, or change the layout", m.FSType)
		if below := got.below(); below != nil && below.fsType == m.FSType {
			advice = fmt.Sprintf("the %s is hidden below it: unmount what is on top", below)
		}
		add(advice, "%s", got)
		return all // nothing else can be compared
	}
	if m.Source != "" && !got.isFrom(m.Source) && !(m.Encryption != "" && got.standsOn(os.DirFS("/sys/dev/block"), m.Source)) {
		add("mount it from there, or change the layout", "%s", got)
	}
	for _, o := range m.Options {
		if !got.has(o) {
			add(fmt.Sprintf("mount -o remount,%s %s, and add it to what mounts it at boot", o, got.point),
				"%s without option %s (it has %s)", got, o, strings.Join(got.options, ","))
		}
	}
	if size, least := fileSystemSize(fd), bytesOf(m.Size); size < least {
		add("grow the file system, or change the layout", "%s of %d MiB", got, size>>20)
	}
	if m.Encryption == EncryptionDMCrypt {
		if err := got.encrypted(os.DirFS("/sys/dev/block")); err != nil {
			add("put the file system on an encrypted device (cryptsetup luksFormat), or change the layout", "%s: %v", got, err)
		}
	}
	return all
}

// has reports whether the mount has an option, in whatever words the kernel has for it.
func (m *mounted) has(option string) bool {
	name, value, _ := strings.Cut(option, "=")
	switch name {
	case "defaults", "rw", "suid", "dev", "exec", "symfollow", "atime":
		return !slices.Contains(m.options, map[string]string{"rw": "ro", "atime": "noatime"}[name]) && !slices.Contains(m.options, "no"+name)
	case "umask":
		return m.has("fmask="+value) && m.has("dmask="+value) // vfat(5): that is what it says
	case "size":
		return m.hasSize(value)
	}
	return slices.ContainsFunc(m.options, func(o string) bool {
		n, v, _ := strings.Cut(o, "=")
		return n == name && (v == value || sameOctal(v, value))
	})
}

// hasSize reports whether the mount has a size option of that many bytes. A share of the memory cannot be compared.
func (m *mounted) hasSize(value string) bool {
	return strings.HasSuffix(value, "%") || slices.ContainsFunc(m.options, func(o string) bool {
		v, ok := strings.CutPrefix(o, "size=")
		return ok && bytesOf(v) == bytesOf(value)
	})
}

// sameOctal reports whether two texts are one octal number: 022 and 0022.
func sameOctal(a, b string) bool {
	x, errX := strconv.ParseUint(a, 8, 32)
	y, errY := strconv.ParseUint(b, 8, 32)
	return errX == nil && errY == nil && x == y
}

// bytesOf reads a size with an optional suffix k, m, g or t of either case. What is no size is 0.
func bytesOf(size string) uint64 {
	digits := strings.TrimRight(size, "kKmMgGtT")
	shift := 10 * (1 + strings.Index("kmgt", strings.ToLower(size[len(digits):])))
	if digits == size {
		shift = 0
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || len(size)-len(digits) > 1 || n > math.MaxUint64>>shift {
		return 0
	}
	return n << shift
}

// fileSystemSize is the size that statfs(2) reports, in bytes.
func fileSystemSize(fd int) uint64 {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return 0
	}
	return st.Blocks * uint64(st.Bsize)
}

// isFrom reports whether the mount's source is the one that is named: by the same name, or by another of the device.
func (m *mounted) isFrom(source string) bool {
	if m.source == source {
		return true
	}
	major, minor, err := blockDevice(sourcePath(source))
	return err == nil && (mountRefDevice{major, minor} == m.device())
}

// sourcePath is what udev makes of fstab's tags.
func sourcePath(source string) string {
	if tag, value, ok := strings.Cut(source, "="); ok {
		return path.Join("/dev/disk", "by-"+strings.ToLower(tag), value)
	}
	return source
}

// standsOn reports whether the mount's device stands on the one that is named: the source of an encrypted file system
// may be the partition that is encrypted. Sys is /sys/dev/block.
func (m *mounted) standsOn(sys fs.FS, source string) bool {
	major, minor, err := blockDevice(sourcePath(source))
	d := m.device()
	return err == nil && d.major != 0 && deviceStandsOn(sys, fmt.Sprintf("%d:%d", d.major, d.minor), fmt.Sprintf("%d:%d", major, minor), 0)
}

// deviceStandsOn looks for a device's number below a device's directory in sysfs.
func deviceStandsOn(sys fs.FS, dir, number string, depth int) bool {
	text, err := fs.ReadFile(sys, dir+"/dev")
	if err == nil && strings.TrimSpace(string(text)) == number {
		return true
	}
	slaves, err := fs.ReadDir(sys, dir+"/slaves")
	return err == nil && depth < maxDevices && slices.ContainsFunc(slaves, func(s fs.DirEntry) bool {
		return deviceStandsOn(sys, dir+"/slaves/"+s.Name(), number, depth+1)
	})
}

// mountRefDevice is a block device's number.
type mountRefDevice struct{ major, minor uint32 }

// device is the block device that the file system is on: the one of its files, or of its source where its files have a
// number of their own (btrfs).
func (m *mounted) device() mountRefDevice {
	if m.major != 0 {
		return mountRefDevice{m.major, m.minor}
	}
	major, minor, err := blockDevice(m.source)
	if err != nil {
		return mountRefDevice{}
	}
	return mountRefDevice{major, minor}
}

// blockDevice returns the number of a block device's node.
func blockDevice(name string) (major, minor uint32, err error) {
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err != nil {
		return 0, 0, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return 0, 0, &fs.PathError{Op: "stat", Path: name, Err: unix.ENOTBLK}
	}
	return unix.Major(uint64(st.Rdev)), unix.Minor(uint64(st.Rdev)), nil
}

// encrypted checks that every device that the file system stands on is dm-crypt's, or stands on such alone. Sys is
// /sys/dev/block.
func (m *mounted) encrypted(sys fs.FS) error {
	d := m.device()
	if d.major == 0 {
		return fmt.Errorf("it is on no block device")
	}
	return encryptedDevice(sys, fmt.Sprintf("%d:%d", d.major, d.minor), 0)
}

// maxDevices bounds how deep devices stand on each other.
const maxDevices = 16

// encryptedDevice looks at a device's directory in sysfs: the uuid that cryptsetup gives a mapping is
// CRYPT-<LUKS1, LUKS2, PLAIN, …>-<uuid>-<name>; those of integrity and verity encrypt nothing. Slaves are what a
// mapping stands on.
func encryptedDevice(sys fs.FS, dir string, depth int) error {
	uuid, err := fs.ReadFile(sys, dir+"/dm/uuid")
	if kind, ok := strings.CutPrefix(string(uuid), "CRYPT-"); err == nil && ok &&
		!strings.HasPrefix(kind, "INTEGRITY-") && !strings.HasPrefix(kind, "VERITY-") {
		return nil
	}
	slaves, err := fs.ReadDir(sys, dir+"/slaves")
	if err != nil || len(slaves) == 0 || depth == maxDevices {
		return fmt.Errorf("device %s is not encrypted", path.Base(dir))
	}
	for _, s := range slaves {
		if err := encryptedDevice(sys, dir+"/slaves/"+s.Name(), depth+1); err != nil {
			return err
		}
	}
	return nil
}
