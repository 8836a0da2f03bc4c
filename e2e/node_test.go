// Package e2e_test runs seedbed as a node does: under a real systemd, with a real containerd and runc.
package e2e_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"seedbed/e2e/systemd"
)

// A fresh machine and one command: the tree, containerd and the images, in order; and all of it again after a stop.
func TestNode(t *testing.T) {
	n := bootNode(t, append(programs(t), ownContainerd(t)))
	defer n.explain()
	n.Run("systemd-analyze", "log-level", "debug") // the service manager tells of each notification
	if got := n.Systemctl("is-enabled", target); got != "enabled" {
		t.Errorf("systemctl says that the target is %s", got)
	}
	n.Systemctl("start", target, "kubelet.service")

	n.wantActive()
	n.wantOrder()
	n.wantOneReadyEach()
	n.wantManifest()
	n.wantMounts()
	n.wantPinned(ociImage)
	n.wantPinned(dockerImage)
	n.wantHello(ociImage)
	n.wantHello(dockerImage)
	n.wantLinesInJournal("one", "two")
	n.wantSurvivor()

	placed := n.readFile(manifest)
	n.stop()
	n.Systemctl("start", target)
	n.wantActive()
	if again := n.readFile(manifest); again != placed {
		t.Errorf("placing the placed tree wrote another manifest:\n%s\nwas:\n%s", again, placed)
	}
	n.wantHello(ociImage)
	n.wantLinesInJournal("three")

	n.kill()
	n.wantHello(dockerImage)
	n.powerOff()
}

// The same images, imported into the empty root before any containerd was there, are the first containerd's own.
func TestNodeFromOfflineImport(t *testing.T) {
	n := bootNode(t, programs(t))
	defer n.explain()
	n.Run("seedbed", "storage", "place")
	n.Run("seedbed", "storage", "check")
	n.wantImported(n.Run("seedbed", "preseed", "import", "--offline", "--output", "json"), "imported", ociImage, dockerImage)

	n.Systemctl("start", containerdUnit)
	n.wantPinned(ociImage)
	n.wantPinned(dockerImage)
	n.wantHello(ociImage)
	n.wantHello(dockerImage)
	n.wantImported(n.Run("seedbed", "preseed", "import", "--output", "json"), "unchanged", ociImage, dockerImage)
	if r := n.Try("seedbed", "preseed", "import", "--offline"); r.ExitCode != 75 {
		t.Errorf("import into a root that containerd holds: %v, want exit 75", r)
	}
	n.powerOff()
}

// An image that is enabled without a running systemd has its units started by the boot, in order and without a cycle.
func TestNodeAtBoot(t *testing.T) {
	binds := programs(t)
	image := t.TempDir()
	writeBundles(t, filepath.Join(image, "containerd/preseed"))
	installIntoImage(t, image)
	for _, path := range []string{
		"containerd/preseed", unitDir + "multi-user.target.wants", unitDir + storageUnit, unitDir + socketUnit,
		unitDir + containerdUnit, unitDir + preseedUnit, unitDir + target,
	} {
		binds = append(binds, systemd.Bind{Host: filepath.Join(image, path), Machine: "/" + path, Writable: true})
	}
	n := &node{t: t, Machine: systemd.Boot(t, systemd.Options{
		Binds: binds, Images: []systemd.Image{dataImage(t)}, Target: "multi-user.target", BootTimeout: time.Minute,
		Files: map[string]string{"/etc/systemd/system/kubelet.service": kubelet},
	})}
	defer n.explain()
	n.wantActive()
	n.wantPinned(ociImage)
	if console := n.Console(); strings.Contains(console, "ordering cycle") {
		t.Errorf("the boot has an ordering cycle:\n%s", console)
	}
	n.powerOff()
}

// A node whose data partition is not mounted is not placed: its data would land on the root file system, and be hidden
// by the partition later. What needs the tree does not start.
func TestNodeWithoutData(t *testing.T) {
	n := bootNodeWith(t, systemd.Options{Binds: programs(t)})
	defer n.explain()
	if r := n.TrySystemctl("start", storageUnit, containerdUnit); r.OK() {
		t.Error("the node was started without a data partition")
	}
	if got := n.Property(storageUnit, "ExecMainStatus"); got != "73" {
		t.Errorf("storage place exited with %s, want 73", got)
	}
	if got := n.state(containerdUnit); got != "inactive/dead" {
		t.Errorf("%s is %s, want it not started", containerdUnit, got)
	}
	said := strings.Join(systemd.Messages(n.Journal("--unit="+storageUnit)), "\n")
	for _, want := range []string{`mount data: found no mount point at "/data": expected a mount of xfs with noexec`, "hint: nothing was changed"} {
		if !strings.Contains(said, want) {
			t.Errorf("the journal does not say %q:\n%s", want, said)
		}
	}
	if r := n.Try("sh", "-c", "test ! -e /data && test ! -e /ephemeral && test ! -e "+manifest); !r.OK() {
		t.Errorf("something was placed: %v", r)
	}
	n.Run("seedbed", "storage", "place", "--mounts=ignore")
	n.powerOff()
}

// The first start of containerd fails; when systemd's next try succeeds, the import follows by itself, and nobody has to
// start the target again.
func TestNodeAfterAFailedStart(t *testing.T) {
	n := bootNode(t, programs(t))
	defer n.explain()
	config := n.Path("/containerd/conf/config.toml")
	if err := errors.Join(os.MkdirAll(filepath.Dir(config), 0o755), os.WriteFile(config, []byte("version = \n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	n.Systemctl("start", "--no-block", target) // a systemd of before 254 keeps the job over the tries
	n.eventually(time.Minute, "containerd's second try", func() bool { return n.Property(containerdUnit, "NRestarts") == "1" })
	if got := n.state(preseedUnit); got != "inactive/dead" {
		t.Errorf("%s is %s after containerd's first start failed, want it not started", preseedUnit, got)
	}
	if r := n.Try("seedbed", "units", "status"); r.ExitCode != 1 || !strings.Contains(r.Stdout, containerdUnit) {
		t.Errorf("units status says nothing of the failure: %v", r)
	}
	if err := os.Remove(config); err != nil {
		t.Fatal(err)
	}
	n.eventually(time.Minute, "the import after containerd's next start", func() bool { return n.state(preseedUnit) == "active/exited" })
	n.wantActive()
	n.wantPinned(ociImage)
	n.wantUnitsStatus()
	n.powerOff()
}
