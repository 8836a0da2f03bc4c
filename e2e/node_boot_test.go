package e2e_test

import (
	"cmp"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"seedbed/e2e/bundle"
	"seedbed/e2e/systemd"
	"seedbed/e2e/tools"
)

const (
	storageUnit    = "seedbed-storage.service"
	socketUnit     = "seedbed-runsc-log.socket"
	containerdUnit = "seedbed-containerd.service"
	preseedUnit    = "seedbed-preseed.service"
	target         = "seedbed.target"

	ociImage    = "example.com/hello-oci:v1"
	dockerImage = "example.com/hello-docker:v1"

	seedbed    = "/usr/local/bin/seedbed"
	manifest   = "/run/seedbed/manifest.json"
	ctrdSocket = "/ephemeral/containerd/client.sock"
	runscFIFO  = "/ephemeral/containerd/runsc-logs.fifo"
)

// kubelet stands for what a node starts once its images are there.
const kubelet = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n"

// node is a machine with seedbed installed, and with bundles of both forms in its preseed directory.
type node struct {
	*systemd.Machine
	t      *testing.T
	socket string // containerd's; ctrdSocket when it is empty
}

func (n *node) address() string { return cmp.Or(n.socket, ctrdSocket) }

// programs returns what the node's image has besides the distribution's: seedbed, ctr, and in system.bin the runtimes.
func programs(t *testing.T) []systemd.Bind {
	t.Helper()
	if reason := systemd.Unable(); reason != "" {
		t.Skipf("no machine boots here: %s", reason)
	}
	runc, err := exec.LookPath("runc")
	if err != nil {
		t.Skipf("running containers needs runc: %v", err)
	}
	built := tools.Build(t)
	return []systemd.Bind{
		{Host: tools.Seedbed(t), Machine: seedbed},
		{Host: built.Ctr, Machine: "/usr/local/bin/ctr"},
		{Host: built.Shim, Machine: "/containerd/bin/containerd-shim-runc-v2"},
		{Host: runc, Machine: "/containerd/bin/runc"},
	}
}

// ownContainerd is for an image that brings a containerd; without it, it is the one that seedbed has in itself.
func ownContainerd(t *testing.T) systemd.Bind {
	t.Helper()
	return systemd.Bind{Host: tools.Build(t).Containerd, Machine: "/containerd/bin/containerd"}
}

// bootNode returns a booted node on which nothing of seedbed has run yet, with its units installed.
func bootNode(t *testing.T, binds []systemd.Bind) *node {
	t.Helper()
	return bootNodeWith(t, systemd.Options{Binds: binds, Images: []systemd.Image{dataImage(t)}})
}

// dataImage returns the node's data partition: without it, its tree is not placed.
func dataImage(t *testing.T) systemd.Image {
	t.Helper()
	file := filepath.Join(t.TempDir(), "data.xfs")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, 2<<30)); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.xfs", "-q", file).CombinedOutput(); err != nil {
		t.Skipf("a node's data partition needs mkfs.xfs: %v: %s", err, out)
	}
	return systemd.Image{Host: file, Machine: "/data", Type: "xfs", Options: "noexec"}
}

// bootNodeWith is bootNode for a machine of other options.
func bootNodeWith(t *testing.T, o systemd.Options) *node {
	t.Helper()
	o.Files = map[string]string{"/etc/systemd/system/kubelet.service": kubelet}
	n := &node{t: t, Machine: systemd.Boot(t, o)}
	writeBundles(t, n.Path("/containerd/preseed"))
	n.Run("seedbed", "units", "install", "--enable")
	n.Systemctl("daemon-reload")
	return n
}

// writeBundles fills a preseed directory with one bundle of each form.
func writeBundles(t *testing.T, preseed string) {
	t.Helper()
	dir := filepath.Join(preseed, "k8s.io")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	writeBundle(t, filepath.Join(dir, "oci.tar"), ociImage, bundle.WriteOCI)
	writeBundle(t, filepath.Join(dir, "docker.tar"), dockerImage, bundle.WriteDocker)
}

func writeBundle(t *testing.T, file, image string, write func(io.Writer, ...bundle.Image) error) {
	t.Helper()
	hello, err := bundle.HelloImage(image)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(write(f, hello), f.Close()); err != nil {
		t.Fatalf("write bundle %s: %v", file, err)
	}
}

// powerOff shuts the node down in order, unless something went wrong on it that is yet to be explained.
func (n *node) powerOff() {
	n.t.Helper()
	if !n.t.Failed() {
		n.PowerOff()
	}
}

// explain puts into the test's output what an operator would look at.
func (n *node) explain() {
	if !n.t.Failed() {
		return
	}
	n.t.Log(n.TrySystemctl("status", "--full", "--lines=0", "seedbed*").Stdout)
	for _, e := range n.Journal("--priority=info", "--lines=60") {
		n.t.Logf("%s[%s]: %s", e["SYSLOG_IDENTIFIER"], e["_PID"], e["MESSAGE"])
	}
}

const unitDir = "etc/systemd/system/"

// installIntoImage installs and enables the units in an image's root, as whoever builds the image does.
func installIntoImage(t *testing.T, image string) {
	t.Helper()
	program := filepath.Join(image, seedbed)
	if err := os.MkdirAll(filepath.Dir(program), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(tools.Seedbed(t), "units", "install", "--root", image, "--enable").CombinedOutput(); err != nil {
		t.Fatalf("install units into an image: %v\n%s", err, out)
	}
}
