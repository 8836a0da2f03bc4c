package vm_test

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"seedbed/e2e/tools"
	"seedbed/e2e/vm"
)

const (
	layoutFile = "/etc/seedbed/layout.json"
	keyFile    = "/etc/cryptsetup-keys.d/data.key"
)

// A blank disk becomes the encrypted data partition at the first boot, by nothing but what `units install` wrote; the
// second boot opens it and finds what the first one left. A file system that is not encrypted is refused.
func TestEncryptedData(t *testing.T) {
	if reason := vm.Unable(); reason != "" {
		t.Skipf("no machine boots here: %s", reason)
	}
	image := image(t, keyFile)
	data, plain := disk(t, "data", 1<<30), disk(t, "plain", 1<<29)
	if out, err := exec.Command("mkfs.xfs", "-q", plain).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.xfs: %v: %s", err, out)
	}
	first := vm.Boot(t, vm.Options{Tree: image, Disks: []string{data, plain}, Script: look + `echo kept >/data/volumes/kept`})
	for _, want := range []string{
		"place exits 0\n", "data: /dev/mapper/data xfs noexec\n", "partition: crypto_LUKS data\n", "ephemeral: active\n",
	} {
		wantOutput(t, first, want)
	}
	if strings.Contains(first.Output, "kept") {
		t.Error("the data partition was there before the first boot")
	}

	second := vm.Boot(t, vm.Options{Tree: image, Disks: []string{data, plain}, Script: look + refuse})
	for _, want := range []string{
		"place exits 0\n", "data: /dev/mapper/data xfs noexec\n", "partition: crypto_LUKS data\n", "kept\n", "check exits 0\n",
		// systemd-cryptsetup, with what the crypttab says, does not take a disk that is not encrypted for one that is.
		"open exits 1\n",
		// Mounted all the same, storage refuses it.
		"is not encrypted", "refused with 73\n",
		// Nothing is made where something is.
		"file system: exec-condition xfs\n", "another type: exec-condition xfs \n",
	} {
		wantOutput(t, second, want)
	}
}

// With a TPM2, which is what `units install` takes when nothing is said, no key is on any disk.
func TestTPM2(t *testing.T) {
	if reason := cmp.Or(vm.Unable(), vm.TPMUnable()); reason != "" {
		t.Skipf("no machine boots here: %s", reason)
	}
	image, data, tpm := image(t, "tpm2"), disk(t, "data", 1<<30), t.TempDir()
	first := vm.Boot(t, vm.Options{Tree: image, Disks: []string{data}, TPM: tpm, Script: look + `echo kept >/data/volumes/kept`})
	wantOutput(t, first, "place exits 0\n")
	wantOutput(t, first, "partition: crypto_LUKS data\n")
	second := vm.Boot(t, vm.Options{Tree: image, Disks: []string{data}, TPM: tpm, Script: look})
	wantOutput(t, second, "place exits 0\n")
	wantOutput(t, second, "kept\n")
}

func wantOutput(t *testing.T, r vm.Result, want string) {
	t.Helper()
	if !strings.Contains(r.Output, want) {
		t.Fatalf("the machine did not say %q:\n%s\nconsole:\n%s", want, r.Output, r.Console)
	}
}

// look starts the storage unit, as a boot to multi-user.target does, and says what it has led to.
const look = `
systemctl start seedbed-storage.service
echo "place exits $?"
systemctl --no-pager --no-legend --failed
journalctl --no-pager -o short-monotonic -u 'seedbed-*' -u 'systemd-cryptsetup@*' -u 'data.mount'
echo "data: $(findmnt -rno SOURCE,FSTYPE /data) $(findmnt -rno OPTIONS /data | grep -o noexec)"
echo "partition: $(blkid -p -s TYPE -o value /dev/vda1) $(blkid -p -s PART_ENTRY_NAME -o value /dev/vda1)"
echo "ephemeral: $(systemctl is-active ephemeral.mount)"
cat /data/volumes/kept 2>/dev/null
seedbed storage check -q
echo "check exits $?"
`

// refuse offers a disk that is not encrypted.
const refuse = `
systemctl stop seedbed-storage.service data.mount
/usr/lib/systemd/systemd-cryptsetup attach plain /dev/vdb ` + keyFile + ` luks 2>&1
echo "open exits $?"
mount -o noexec /dev/vdb /data
seedbed storage place --layout ` + layoutFile + ` 2>&1
echo "refused with $?"
umount /data
drop_in=/run/systemd/system/seedbed-repart.service.d/z.conf
mkdir -p "${drop_in%/*}"
printf '[Service]\nEnvironment=DISK=/dev/vdb\n' >$drop_in
systemctl daemon-reload
systemctl restart seedbed-repart.service
echo "file system: $(systemctl show --value -p Result seedbed-repart.service) $(blkid -p -s TYPE -o value /dev/vdb)"
rm $drop_in
systemctl daemon-reload
systemctl stop systemd-cryptsetup@data.service
mkdir /tmp/other
printf '[Partition]\nType=linux-generic\nLabel=data\nFormat=xfs\nSizeMaxBytes=400M\n' >/tmp/other/a.conf
systemd-repart --definitions=/tmp/other --empty=force --dry-run=no /dev/vda >/dev/null 2>&1
udevadm settle
systemctl restart seedbed-repart.service
echo "another type: $(systemctl show --value -p Result seedbed-repart.service) $(blkid -p -s TYPE -o value /dev/vda1) $(ls /dev/vda2 2>/dev/null)"
`

// image makes, for what opens the disk, what an image's builder would add to a distribution's root: seedbed, a layout that asks for encryption, its
// units, the key, and which disk is to be used.
func image(t *testing.T, unlock string) string {
	t.Helper()
	root := t.TempDir()
	program, err := os.ReadFile(tools.Seedbed(t))
	if err != nil {
		t.Fatal(err)
	}
	key := make([]byte, 64)
	_, _ = rand.Read(key) // it never fails
	write(t, filepath.Join(root, "/usr/local/bin/seedbed"), program, 0o755)
	write(t, filepath.Join(root, layoutFile), encryptedLayout(t), 0o644)
	if unlock != "tpm2" { // systemd-cryptsetup would take a file of that name for what the TPM2 has sealed
		write(t, filepath.Join(root, unlock), key, 0o600)
	}
	write(t, filepath.Join(root, "/etc/systemd/system/seedbed-repart.service.d/disk.conf"), []byte("[Service]\nEnvironment=DISK=/dev/vda EMPTY=allow\n"), 0o644)
	install := exec.Command(tools.Seedbed(t), "units", "install", "--root", root, "--layout", filepath.Join(root, layoutFile), "--unlock", unlock, "--enable")
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("install units into the image: %v\n%s", err, out)
	}
	return root
}

// encryptedLayout is the layout node, with encryption asked for.
func encryptedLayout(t *testing.T) []byte {
	t.Helper()
	text, err := exec.Command(tools.Seedbed(t), "storage", "layout").Output()
	if err != nil {
		t.Fatal(err)
	}
	var layout map[string]any
	if err := json.Unmarshal(text, &layout); err != nil {
		t.Fatal(err)
	}
	for _, m := range layout["mounts"].([]any) {
		if mount := m.(map[string]any); mount["id"] == "data" {
			mount["encryption"] = "dm-crypt"
		}
	}
	text, err = json.Marshal(layout)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func write(t *testing.T, file string, data []byte, mode os.FileMode) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, data, mode)); err != nil {
		t.Fatal(err)
	}
}

// disk makes a blank disk of that many bytes.
func disk(t *testing.T, name string, size int64) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, size)); err != nil {
		t.Fatal(err)
	}
	return file
}
