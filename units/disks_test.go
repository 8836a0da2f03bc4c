package units

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"seedbed/storage"
)

// encrypted is a data partition for which the layout asks for encryption, an ESP with a source, and the node's tmpfs.
func encrypted() Params {
	return Params{Disks: Disks(
		[]storage.Node{{ID: "ephemeral", Mode: 0o755, UID: 0, GID: 7}},
		[]storage.Mount{
			{ID: "esp", Path: "/esp", Policy: storage.PolicyPrefer, FSType: "vfat", Source: "PARTLABEL=esp", Options: []string{"umask=0077"}},
			{ID: "data", Path: "/data", Policy: storage.PolicyRequire, FSType: "xfs", Options: []string{"noexec"}, Size: "2g", Encryption: storage.EncryptionDMCrypt},
			{ID: "ephemeral", Path: "/ephemeral", Policy: storage.PolicyMake, FSType: "tmpfs", Options: []string{"nosuid", "nodev"}, Size: "64m"},
			{ID: "tmp", Path: "/tmp", Policy: storage.PolicyPrefer, FSType: "tmpfs"},
		},
	)}
}

func readFile(t *testing.T, root, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestInstallDisks(t *testing.T) {
	root := t.TempDir()
	install(t, root, encrypted(), true)
	for file, lines := range map[string][]string{
		Directory + "/data.mount": {
			"What=/dev/mapper/data", "Where=/data", "Type=xfs", "Options=noexec", "Before=seedbed-storage.service", "RequiredBy=seedbed-storage.service",
			"Wants=seedbed-repart.service systemd-growfs@data.service",
		},
		Directory + "/esp.mount":       {"What=/dev/disk/by-partlabel/esp", "Where=/esp", "Type=vfat", "Options=umask=0077", "WantedBy=seedbed-storage.service"},
		Directory + "/ephemeral.mount": {"What=tmpfs", "Where=/ephemeral", "Type=tmpfs", "Options=mode=0755,uid=0,gid=7,nosuid,nodev,size=64m"},
		repartDefinitions + "/50-data.conf": {
			"Label=data", "Format=xfs", "Encrypt=tpm2", "SizeMinBytes=2G", "Type=" + partitionType,
		},
		crypttab: {"data PARTLABEL=data - luks,tpm2-device=auto,noauto"},
		Directory + "/seedbed-repart.service": {
			"Before=systemd-cryptsetup@data.service",
			"ExecStartPost=/bin/sh -c 'udevadm settle'", // else the partition goes away under systemd-cryptsetup
			"ExecStart=/usr/bin/systemd-repart --definitions=/etc/seedbed/repart.d --dry-run=no --empty=${EMPTY} $DISK",
		},
	} {
		text := readFile(t, root, file)
		for _, line := range lines {
			if !strings.Contains(text, "\n"+line+"\n") {
				t.Errorf("%s has no line %q:\n%s", file, line, text)
			}
		}
	}
	for _, link := range []string{"seedbed-storage.service.requires/data.mount", "seedbed-storage.service.wants/esp.mount"} {
		if _, err := os.Stat(filepath.Join(root, Directory, link)); err != nil {
			t.Errorf("not enabled: %v", err)
		}
	}
	if _, err := os.Lstat(filepath.Join(root, Directory, "tmp.mount")); err == nil {
		t.Error("/tmp got a unit: it is the host's")
	}
	if got := install(t, root, encrypted(), true); len(got) != 0 {
		t.Errorf("the second run changed %q", got)
	}
}

// A layout that names no device has its operator mount what it requires: nothing is written.
func TestNoDisksUnlessAskedFor(t *testing.T) {
	layout, err := storage.Builtin("node")
	if err != nil {
		t.Fatal(err)
	}
	if got := Disks(layout.Nodes, layout.Mounts); got != nil {
		t.Errorf("got %v", got)
	}
}

// What is written once with a key file stays so without the flag: FindUnlock reads it back.
func TestUnlockIsKept(t *testing.T) {
	root := t.TempDir()
	p := encrypted()
	if got := FindUnlock(root, p.Disks); got != "" {
		t.Errorf("nothing installed: %q", got)
	}
	for _, unlock := range []string{"/etc/keys/data.key", TPM2} {
		p.Unlock = unlock
		install(t, root, p, false)
		if got := FindUnlock(root, p.Disks); got != unlock {
			t.Errorf("got %q, want %q", got, unlock)
		}
	}
}

// The administrator's files are never changed: they agree, or nothing at all is written.
func TestInstallDisksBesideTheAdministrators(t *testing.T) {
	for _, test := range []struct{ name, file, text, want string }{
		{"a crypttab that agrees", crypttab, "# mine\ndata  PARTLABEL=data none luks,tpm2-device=auto,discard\nswap /dev/sda3 /dev/urandom swap\n", ""},
		{"a crypttab without the line", crypttab, "# <target name> <source device>\n", "no line for data"},
		{"a crypttab with another device", crypttab, "data UUID=1234 none luks,tpm2-device=auto\n", "data on UUID=1234"},
		{"a crypttab with another key", crypttab, "data PARTLABEL=data /root/key luks\n", `opens it with "/root/key luks"`},
		{"an fstab that mounts it too", fstab, "/dev/sda2 /data xfs noexec 0 0\n", "a line for /data"},
		{"an fstab with other mounts", fstab, "/dev/sda1 / ext4 defaults 0 1\n", ""},
		{"a mount unit", Directory + "/data.mount", "[Mount]\nWhat=/dev/sda2\nWhere=/data\n", "a file that seedbed did not write"},
		{"a definition", repartDefinitions + "/50-data.conf", "[Partition]\n", "a file that seedbed did not write"},
		{"a mask", Directory + "/data.mount", "", "did not write"},
		{"an earlier file of seedbed's", Directory + "/data.mount", written + "[Mount]\n", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := t.TempDir()
			put(t, root, test.file, test.text)
			changed, err := Install(root, encrypted(), false)
			conflict := (*Conflict)(nil)
			switch {
			case test.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case test.want != "" && (!errors.As(err, &conflict) || !strings.Contains(err.Error(), test.want) || len(changed) != 0 || conflict.Hint() == ""):
				t.Errorf("got %v and %q, want a *Conflict with %q", err, changed, test.want)
			}
			if got := readFile(t, root, test.file); got != test.text && !strings.HasPrefix(test.text, written) {
				t.Errorf("%s was changed:\n%s", test.file, got)
			}
		})
	}
}

// A source that names the mapping, or a device that is there already.
func TestDiskSources(t *testing.T) {
	for _, test := range []struct {
		source, line, what string
		made               bool
	}{
		{"", "data PARTLABEL=data -", "/dev/mapper/data", true},
		{"PARTLABEL=store", "data PARTLABEL=store -", "/dev/mapper/data", true},
		{"/dev/mapper/store", "store PARTLABEL=data -", "/dev/mapper/store", true},
		{"UUID=1234", "data UUID=1234 -", "/dev/mapper/data", false},
		{"/dev/sdb1", "data /dev/sdb1 -", "/dev/mapper/data", false},
	} {
		p := encrypted()
		i := slices.IndexFunc(p.Disks, func(d Disk) bool { return d.ID == "data" })
		p.Disks[i].Source = test.source
		p = p.withDefaults()
		if got := p.cryptLine(&p.Disks[i]); !strings.HasPrefix(got, test.line) {
			t.Errorf("source %q: crypttab has %q, want %q", test.source, got, test.line)
		}
		if got := p.Disks[i].what(); got != test.what {
			t.Errorf("source %q: mounts %s, want %s", test.source, got, test.what)
		}
		if got := len(p.diskFiles()) > 0; got != test.made {
			t.Errorf("source %q: a partition is made: %v, want %v", test.source, got, test.made)
		}
	}
}

func TestDisksPassTheCheck(t *testing.T) {
	needAnalyze(t)
	if err := Check(t.Context(), encrypted()); err != nil {
		t.Error(err)
	}
}

func TestDisksRefuse(t *testing.T) {
	for name, change := range map[string]func(p *Params){
		"a key file that is relative":  func(p *Params) { p.Unlock = "data.key" },
		"a key file with a space":      func(p *Params) { p.Unlock = "/etc/data key" },
		"a source with a line end":     func(p *Params) { p.Disks[0].Source = "LABEL=x\n[Mount]" },
		"an option with a specifier":   func(p *Params) { p.Disks[0].Options = []string{"%h"} },
		"a mount point with a percent": func(p *Params) { p.Disks[0].Path = "/srv/%n" },
	} {
		p := encrypted()
		change(&p)
		_, err := Install(t.TempDir(), p, false)
		if bad := (*BadParam)(nil); !errors.As(err, &bad) {
			t.Errorf("%s: %v, want a *BadParam", name, err)
		}
	}
}
