package vm

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// programs are those of the host that the machine has.
const programs = "sh mkdir rm mount umount cat ls grep sleep true test sync dd " +
	"systemctl journalctl systemd-repart systemd-tmpfiles systemd-escape udevadm kmod modprobe dmsetup blkid lsblk findmnt mkfs.xfs"

// trees are the directories of the host that the machine has.
var trees = []string{
	"/usr/lib/systemd/system", "/usr/lib/udev/rules.d", "/usr/lib/tmpfiles.d",
}

// patterns are the files of the host that the machine has beside its programs; of the generators only the one that is
// needed, since each costs a boot a quarter of a second.
var patterns = []string{
	"/usr/lib/systemd/*", "/usr/lib/systemd/system-generators/systemd-cryptsetup-generator", "/usr/lib/x86_64-linux-gnu/systemd/*",
	"/usr/lib/x86_64-linux-gnu/cryptsetup/*", // how a TPM2 opens a disk
}

// loaded are what systemd loads while it runs, and nothing names before.
var loaded = []string{
	"/usr/lib/x86_64-linux-gnu/libcryptsetup.so.12", "/usr/lib/x86_64-linux-gnu/libgcc_s.so.1", "/usr/lib/x86_64-linux-gnu/libnss_files.so.2",
	"/usr/lib/x86_64-linux-gnu/libtss2-esys.so.0", "/usr/lib/x86_64-linux-gnu/libtss2-rc.so.0", "/usr/lib/x86_64-linux-gnu/libtss2-mu.so.0",
	"/usr/lib/x86_64-linux-gnu/libtss2-tcti-device.so.0",
}

// modules are the directories of the kernel's modules that the machine has.
var modules = []string{
	"arch/x86/crypto", "block", "crypto", "drivers/block", "drivers/char", "drivers/md", "drivers/virtio", "fs/fat", "fs/nls", "fs/xfs", "lib",
}

// config is what every machine has in /etc: the accounts that systemd's own units ask for, an id, so that its boot is no
// first one, and masks (files with nothing in them) of what a machine without a network and a clock of its own needs not.
var config = map[string]string{
	"/etc/machine-id": "5eedbed05eedbed05eedbed05eedbed0\n",
	"/etc/systemd/system/systemd-timesyncd.service": "", "/etc/systemd/system/systemd-sysusers.service": "",
	"/etc/systemd/system/systemd-update-utmp.service": "", "/etc/systemd/system/systemd-pcrphase.service": "",
	"/etc/systemd/system.conf.d/patient.conf": "[Manager]\nDefaultDeviceTimeoutSec=4min\nDefaultTimeoutStartSec=4min\n", // it is slow
	"/etc/systemd/system/timers.target":       "", "/etc/systemd/system/systemd-repart.service": "",
	"/etc/passwd":   "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
	"/etc/group":    "root:x:0:\nadm:x:4:\ntty:x:5:\ndisk:x:6:\nkmem:x:15:\nsystemd-journal:x:999:\nnogroup:x:65534:\n",
	"/etc/hostname": "machine\n",
}

// writeRoot writes the machine's root: the kernel's modules, what systemd needs of the host's /usr, and what the options
// add. It needs some 60 MiB, which are the machine's memory.
func writeRoot(file string, k kernel, o Options) error {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer out.Close()
	w := bufio.NewWriterSize(out, 1<<20)
	a := newArchive(w)
	for _, dir := range []string{"bin", "sbin", "lib", "lib64"} {
		a.put(dir, unix.S_IFLNK|0o777, []byte("usr/"+dir))
	}
	for _, dir := range []string{"dev", "proc", "sys", "run", "tmp", "root", "var/log", "var/tmp"} {
		a.put(dir, unix.S_IFDIR|0o755, nil)
	}
	a.put("init", unix.S_IFLNK|0o777, []byte("usr/lib/systemd/systemd"))
	for name, text := range o.Files {
		a.put(name, unix.S_IFREG|0o644, []byte(text))
	}
	if o.Tree != "" {
		a.host(o.Tree, "/")
	}
	for name, text := range config {
		a.put(name, unix.S_IFREG|0o644, []byte(text))
	}
	a.putPrograms()
	a.putModules(k)
	if err := a.end(); err != nil {
		return err
	}
	return w.Flush()
}

// putPrograms puts the host's programs and all libraries that they need.
func (a *archive) putPrograms() {
	files := loaded
	for name := range strings.FieldsSeq(programs) {
		if file, err := exec.LookPath(name); err == nil {
			files = append(files, file)
		}
	}
	for _, tree := range trees {
		a.host(tree, "")
	}
	for _, pattern := range patterns {
		found, _ := filepath.Glob(pattern) // the patterns are well formed
		files = append(files, found...)
	}
	for _, file := range files {
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
			a.host(file, "")
		}
	}
	for _, library := range libraries(files) {
		a.host(library, "")
	}
}

// libraries returns what the dynamic linker would load for the files; what is no program has none.
func libraries(files []string) []string {
	out, _ := exec.Command("ldd", files...).Output() // it ends with 1 when one of them is no program
	var all []string
	for line := range strings.Lines(string(out)) {
		for _, word := range strings.Fields(line) {
			if strings.HasPrefix(word, "/") && !strings.HasSuffix(word, ":") {
				all = append(all, word)
				break
			}
		}
	}
	return all
}

func (a *archive) putModules(k kernel) {
	indexes, _ := filepath.Glob(filepath.Join(k.modules, "modules.*")) // the pattern is well formed
	to := filepath.Join("/usr/lib/modules", k.version)
	for _, file := range indexes {
		a.host(file, filepath.Join(to, filepath.Base(file)))
	}
	for _, dir := range modules {
		a.host(filepath.Join(k.modules, "kernel", dir), filepath.Join(to, "kernel", dir))
	}
}
