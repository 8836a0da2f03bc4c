// Package vm boots a virtual machine for what no namespace can show: disks, dm-crypt, a boot from power on. It runs
// Debian's cloud kernel under qemu's software emulation, with the host's own systemd and udev in an initial RAM file
// system as its root. A boot with disks, a command and the power off takes some 15 seconds.
package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Options says what a machine has, and what it does.
type Options struct {
	// Tree is a directory of the host whose files are put over the machine's root; "" for none.
	Tree string
	// Files are written into the root: absolute path to content, mode 0644.
	Files map[string]string
	// Disks are files of the host, raw images: /dev/vda, /dev/vdb, …
	Disks []string
	// TPM is a directory with the state of the machine's TPM2; "" for none.
	TPM string
	// Script is what the machine's shell runs once basic.target is reached; the machine powers off when it ends.
	Script string
	// Timeout bounds the machine's life; four minutes when it is 0.
	Timeout time.Duration
}

// Result is what a machine left.
type Result struct {
	Output  string // of the script
	Console string // the kernel's and systemd's own log
}

// kernel is what setup.sh has unpacked of Debian's package.
type kernel struct{ version, image, modules string }

// findKernel looks for it in the user's cache directory.
func findKernel() (kernel, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return kernel{}, err
	}
	dir := filepath.Join(cache, "seedbed-e2e", "kernel")
	images, err := filepath.Glob(filepath.Join(dir, "boot", "vmlinuz-*"))
	if err != nil || len(images) == 0 {
		return kernel{}, fmt.Errorf("no kernel in %s: e2e/setup.sh puts it there, as root on Debian", dir)
	}
	version := strings.TrimPrefix(filepath.Base(images[len(images)-1]), "vmlinuz-")
	return kernel{version, images[len(images)-1], filepath.Join(dir, "lib", "modules", version)}, nil
}

// Unable says why no machine can be booted here, or "" when one can.
func Unable() string {
	for _, program := range []string{"qemu-system-x86_64", "systemd-repart", "udevadm", "modprobe", "mkfs.xfs", "ldd"} {
		if _, err := exec.LookPath(program); err != nil {
			return "a virtual machine needs " + err.Error()
		}
	}
	if _, err := findKernel(); err != nil {
		return "a virtual machine needs a kernel: " + err.Error()
	}
	return ""
}

// unit runs the script and ends the machine with it, whatever became of it.
const unit = `[Unit]
SuccessAction=poweroff-force
FailureAction=poweroff-force
[Service]
Type=oneshot
ExecStart=/bin/sh /e2e/script
StandardOutput=file:/dev/ttyS1
StandardError=inherit
`

const target = "[Unit]\nRequires=basic.target\nAfter=basic.target\nWants=e2e.service\nAllowIsolate=yes\n"

// Boot runs a machine from power on to power off. It skips the test, with the reason, where no machine can be booted, and
// fails it when the machine does not power off in time.
func Boot(t testing.TB, o Options) Result {
	t.Helper()
	if reason := Unable(); reason != "" {
		t.Skip(reason)
	}
	k, err := findKernel()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{
		"/e2e/script": o.Script, "/etc/systemd/system/e2e.service": unit, "/etc/systemd/system/e2e.target": target,
	}
	for name, text := range o.Files {
		files[name] = text
	}
	o.Files = files
	dir := t.TempDir()
	if err := writeRoot(filepath.Join(dir, "root.cpio"), k, o); err != nil {
		t.Fatalf("write the machine's root: %v", err)
	}
	r, err := run(dir, k, o)
	if err != nil {
		t.Fatalf("boot machine: %v\noutput:\n%s\nconsole:\n%s", err, r.Output, r.Console)
	}
	return r
}

// run starts qemu and waits for its end, which is the machine's.
func run(dir string, k kernel, o Options) (Result, error) {
	limit := o.Timeout
	if limit == 0 {
		limit = 4 * time.Minute
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	console, output := filepath.Join(dir, "console"), filepath.Join(dir, "output")
	args := []string{
		"-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "Nehalem,+aes,+rdrand", "-smp", "2", "-m", "1024",
		"-nodefaults", "-display", "none", "-no-reboot",
		"-serial", "file:" + console, "-serial", "file:" + output,
		"-kernel", k.image, "-initrd", filepath.Join(dir, "root.cpio"),
		"-append", "console=ttyS0 panic=-1 quiet mitigations=off cryptomgr.notests audit=0 systemd.unit=e2e.target systemd.log_color=0 systemd.show_status=error rd.systemd.gpt_auto=0 systemd.gpt_auto=0",
	}
	for i, disk := range o.Disks {
		args = append(args, "-drive", fmt.Sprintf("if=none,format=raw,cache=unsafe,id=disk%d,file=%s", i, disk),
			"-device", fmt.Sprintf("virtio-blk-pci,drive=disk%d,serial=disk%d", i, i))
	}
	if o.TPM != "" {
		tpm, end, err := startTPM(o.TPM, filepath.Join(dir, "tpm"))
		if err != nil {
			return Result{}, err
		}
		defer end()
		args = append(args, tpm...)
	}
	said, err := exec.CommandContext(ctx, "qemu-system-x86_64", args...).CombinedOutput()
	if ctx.Err() != nil {
		err = errors.Join(fmt.Errorf("it was not off after %s", limit), err)
	}
	if err != nil && len(said) > 0 {
		err = fmt.Errorf("%w: %s", err, said)
	}
	return Result{Output: read(output), Console: read(console)}, err
}

// read returns a file of a terminal, with ordinary line ends; what was not written is empty.
func read(file string) string {
	text, _ := os.ReadFile(file)
	return string(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")))
}
