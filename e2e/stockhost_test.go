package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"seedbed/e2e/bundle"
	"seedbed/e2e/systemd"
	"seedbed/e2e/tools"
)

// What the README tells the owner of a stock host works, line by line: no data partition, programs in PATH, the socket
// where every client looks.
func TestStockHost(t *testing.T) {
	n := bootStockHost(t)
	defer n.explain()
	writeBundle(t, n.Path("/root/app.tar"), ociImage, bundle.WriteOCI)
	for _, line := range readmeLines(t, "## A real host") {
		n.Run("sh", "-c", "cd /root && "+line)
	}
	n.wantActive()
	n.wantPinned(ociImage)
	n.wantHello(ociImage)
	if drift := n.Try("seedbed", "storage", "check"); !drift.OK() {
		t.Errorf("what runs does not leave the tree as it was placed: %v", drift)
	}
	n.stop()
	n.Systemctl("start", target)
	n.wantActive()
	n.wantImported(n.Run("seedbed", "preseed", "import", "--output", "json"), "unchanged", ociImage)
	n.powerOff()
}

// bootStockHost returns a machine with the programs that a distribution's packages bring, and its own layout.
func bootStockHost(t *testing.T) *node {
	t.Helper()
	binds := programs(t)
	for i := range binds {
		binds[i].Machine = filepath.Join("/usr/local/bin", filepath.Base(binds[i].Machine))
	}
	binds = append(binds, systemd.Bind{Host: tools.Build(t).Containerd, Machine: "/usr/local/bin/containerd"})
	n := &node{t: t, socket: "/run/containerd/containerd.sock"}
	n.Machine = systemd.Boot(t, systemd.Options{Binds: binds})
	return n
}

// readmeLines returns the commands of the first block of a section of the README, but for those that install what the
// machine of the test has already.
func readmeLines(t *testing.T, section string) []string {
	t.Helper()
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(readme), "\n"+section+"\n")
	_, text, _ = strings.Cut(text, "\n```sh\n")
	text, _, found := strings.Cut(text, "\n```\n")
	if !found {
		t.Fatalf("the README has no block of commands under %q", section)
	}
	var lines []string
	for line := range strings.Lines(text) {
		installs := strings.HasPrefix(line, "apt-get ") || strings.HasPrefix(line, "make install") || strings.HasPrefix(line, "systemctl disable ")
		if !installs {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}
