package units

import (
	"cmp"
	"fmt"
	"path"
	"path/filepath"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"

	"seedbed/storage"
)

// Disk is a mount of the layout that the service manager brings up: from a device, or a tmpfs.
type Disk struct {
	storage.Mount
	Mode     storage.Mode // of the root of a tmpfs
	UID, GID int          // its owner
}

// TPM2 is the value of Params.Unlock for a key that is sealed in the machine's TPM2.
const TPM2 = "tpm2"

const (
	repartUnit        = "seedbed-repart.service"
	repartDefinitions = "/etc/seedbed/repart.d"
	crypttab          = "/etc/crypttab"
	fstab             = "/etc/fstab"

	// partitionType marks the partitions that are seedbed's to make and grow, so that systemd-repart, which goes by the
	// type, never takes another one for them.
	partitionType = "8d2ec5d8-6f3c-4a43-9c0e-5b1f9d0a7e61"

	// written begins each file that is made for the disks: what does not begin with it is the administrator's.
	written = "# Written by `seedbed units install` for the layout; what is changed here is written over.\n"
)

// Disks returns what of a layout the service manager is to bring up: nothing, unless the layout names a device or asks
// for encryption. A tmpfs that is only preferred is the host's own (/tmp, /run).
func Disks(nodes []storage.Node, mounts []storage.Mount) []Disk {
	var disks []Disk
	asked := false
	for _, m := range mounts {
		device := m.Source != "" || m.Encryption != ""
		if !device && m.Policy != storage.PolicyMake {
			continue
		}
		asked = asked || device
		d := Disk{Mount: m}
		for _, n := range nodes {
			if n.ID == m.ID {
				d.Mode, d.UID, d.GID = n.Mode, n.UID, n.GID
			}
		}
		disks = append(disks, d)
	}
	if !asked {
		return nil
	}
	return disks
}

func (d *Disk) encrypted() bool { return d.Encryption == storage.EncryptionDMCrypt }

// mapping is the name of the encrypted disk's mapping, below /dev/mapper, and partition what it stands on.
func (d *Disk) mapping() (name, partition string) {
	if name, ok := strings.CutPrefix(d.Source, "/dev/mapper/"); ok {
		return name, "PARTLABEL=" + d.ID
	}
	return d.ID, cmp.Or(d.Source, "PARTLABEL="+d.ID)
}

// what is the device that is mounted.
func (d *Disk) what() string {
	name, _ := d.mapping()
	switch {
	case d.encrypted():
		return "/dev/mapper/" + name
	case d.Source == "":
		return "tmpfs"
	}
	return device(d.Source)
}

// device returns the path that udev gives a device that is named in fstab's way.
func device(source string) string {
	if tag, value, ok := strings.Cut(source, "="); ok && !strings.HasPrefix(source, "/") {
		return "/dev/disk/by-" + strings.ToLower(tag) + "/" + value
	}
	return source
}

// options are those that the disk is mounted with.
func (d *Disk) options() []string {
	if d.Source != "" || d.encrypted() {
		return d.Options
	}
	options := append([]string{fmt.Sprintf("mode=%s,uid=%d,gid=%d", d.Mode, d.UID, d.GID)}, d.Options...)
	if d.Size != "" {
		options = append(options, "size="+d.Size)
	}
	return options
}

// mountUnit is the disk's mount unit: systemd.mount(5). The mounts and the links above its path, and the device, are
// dependencies that the service manager adds by itself.
func (d *Disk) mountUnit() rendered {
	var text strings.Builder
	text.WriteString(written)
	fmt.Fprintf(&text, "[Unit]\nDescription=Mount %s of the node's tree\nDocumentation=man:seedbed-units-install(1)\nBefore=seedbed-storage.service\n", d.ID)
	if d.encrypted() {
		fmt.Fprintf(&text, "# The partition is made at the first boot, and the file system grows with it (systemd 254 or newer).\nWants=%s systemd-growfs@%s.service\n", repartUnit, unit.UnitNamePathEscape(d.Path))
	}
	fmt.Fprintf(&text, "\n[Mount]\nWhat=%s\nWhere=%s\nType=%s\n", d.what(), d.Path, cmp.Or(d.FSType, "auto"))
	if options := d.options(); len(options) > 0 {
		fmt.Fprintf(&text, "Options=%s\n", strings.Join(options, ","))
	}
	wanted := "WantedBy"
	if d.Policy == storage.PolicyRequire {
		wanted = "RequiredBy"
	}
	fmt.Fprintf(&text, "\n[Install]\n%s=seedbed-storage.service\n", wanted)
	name := unit.UnitNamePathEscape(d.Path) + ".mount"
	return rendered{name: name, path: path.Join(Directory, name), text: []byte(text.String()), marked: true}
}

// diskUnits are the units for the layout's disks, in the order in which they start.
func (p Params) diskUnits() []rendered {
	var all []rendered
	for _, d := range p.Disks {
		if _, ok := d.partitionLabel(); ok {
			all = []rendered{p.repart()}
		}
	}
	for _, d := range p.Disks {
		all = append(all, d.mountUnit())
	}
	return all
}

// repart is the service that makes the encrypted partitions and grows them: systemd-repart(8).
func (p Params) repart() rendered {
	var text strings.Builder
	text.WriteString(written + `#
# It makes the partitions of ` + repartDefinitions + ` that are not there yet, encrypted and with their file system, and
# grows those that are there into free space. It works on the disk that the root file system is on, which has to have a
# GPT; for another one, and EMPTY=allow to give a blank one its GPT, in a drop-in:
#
#   [Service]
#   Environment=DISK=/dev/disk/by-id/… EMPTY=allow
[Unit]
Description=Make and grow the encrypted partitions of the node's tree
Documentation=man:systemd-repart(8)
DefaultDependencies=no
Wants=modprobe@loop.service modprobe@dm_mod.service
After=modprobe@loop.service modprobe@dm_mod.service systemd-tmpfiles-setup-dev.service systemd-udev-trigger.service
Conflicts=shutdown.target
Before=shutdown.target
`)
	key := ""
	if p.Unlock != TPM2 {
		fmt.Fprintf(&text, "RequiresMountsFor=%s\n", p.Unlock)
		key = " --key-file=" + p.Unlock
	}
	for _, d := range p.Disks {
		if d.encrypted() {
			name, _ := d.mapping()
			fmt.Fprintf(&text, "Before=systemd-cryptsetup@%s.service\n", unit.UnitNameEscape(name))
		}
	}
	text.WriteString(`
[Service]
Type=oneshot
RemainAfterExit=yes
Environment=DISK= EMPTY=refuse
# What systemd-repart does not ask: a disk that has a file system instead of partitions is not blank.
ExecCondition=/bin/sh -c 'udevadm settle; test -z "$$DISK" || test -z "$$(blkid -p -s USAGE -o value "$$DISK")"'
`)
	for _, d := range p.Disks {
		if label, ok := d.partitionLabel(); ok {
			fmt.Fprintf(&text, `# A partition of that label and another type is somebody else's: it is used, and nothing is made beside it.
ExecCondition=/bin/sh -c '! test -e /dev/disk/by-partlabel/%[1]s || udevadm info /dev/disk/by-partlabel/%[1]s | grep -q ID_PART_ENTRY_TYPE=%[2]s'
`, label, partitionType)
		}
	}
	fmt.Fprintf(&text, "ExecStart=/usr/bin/systemd-repart --definitions=%s --dry-run=no --empty=${EMPTY}%s $DISK\n", repartDefinitions, key)
	text.WriteString(`# When the disk is closed, udev reads its partitions again: for a moment they are gone, and with them whoever opens one.
ExecStartPost=/bin/sh -c 'udevadm settle'
`)
	return rendered{name: repartUnit, path: path.Join(Directory, repartUnit), text: []byte(text.String()), marked: true}
}

// partitionLabel is the label of the partition that is made for the disk, if one is: a partition that has no label yet
// can be named by it alone.
func (d *Disk) partitionLabel() (string, bool) {
	_, partition := d.mapping()
	label, ok := strings.CutPrefix(partition, "PARTLABEL=")
	return label, ok && d.encrypted()
}

// diskFiles are the files for the layout's disks that are no units: repart.d(5).
func (p Params) diskFiles() []rendered {
	var all []rendered
	for _, d := range p.Disks {
		label, ok := d.partitionLabel()
		if !ok {
			continue
		}
		encrypt := "key-file"
		if p.Unlock == TPM2 {
			encrypt = TPM2
		}
		text := written + fmt.Sprintf("[Partition]\nType=%s\nLabel=%s\nFormat=%s\nEncrypt=%s\n",
			partitionType, label, cmp.Or(d.FSType, "xfs"), encrypt)
		if d.Size != "" {
			text += "SizeMinBytes=" + strings.ToUpper(d.Size) + "\n"
		}
		name := "50-" + d.ID + ".conf"
		all = append(all, rendered{name: name, path: path.Join(repartDefinitions, name), text: []byte(text), marked: true})
	}
	return all
}

// cryptLine is the disk's line in crypttab(5). With luks, a device that is not encrypted is never opened as if it were;
// with noauto, it is opened for the mount unit, and a boot without the disk goes on.
func (p Params) cryptLine(d *Disk) string {
	name, partition := d.mapping()
	if p.Unlock == TPM2 {
		return fmt.Sprintf("%s %s - luks,tpm2-device=auto,noauto", name, partition)
	}
	return fmt.Sprintf("%s %s %s luks,noauto", name, partition, p.Unlock)
}

func (p Params) validateDisks() error {
	if p.Unlock != TPM2 && (!filepath.IsAbs(p.Unlock) || filepath.Clean(p.Unlock) != p.Unlock) {
		return &BadParam{"unlock", p.Unlock, "expected tpm2, or a key file's absolute path"}
	}
	values := map[string]string{"unlock": p.Unlock}
	for _, d := range p.Disks {
		values["mount "+d.ID+", path"], values["mount "+d.ID+", source"] = d.Path, d.Source
		values["mount "+d.ID+", options"], values["mount "+d.ID+", type"] = strings.Join(d.Options, ","), d.FSType
	}
	for field, value := range values {
		if reason := unfit(value); reason != "" {
			return &BadParam{field, value, reason}
		}
	}
	return nil
}
