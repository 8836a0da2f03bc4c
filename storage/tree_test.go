package storage

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestTree compares the declared tree with a checked-in table of path, kind and mode.
func TestTree(t *testing.T) {
	data, err := os.ReadFile("testdata/tree.golden")
	must(t, err)
	declared := map[string]string{}
	for _, n := range builtin(t, "node").Nodes {
		declared[n.Path] = string(n.Kind) + " " + n.Mode.String()
	}
	rows := 0
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if f[0] == "#" {
			continue
		}
		rows++
		if got, want := declared[f[0]], f[1]+" "+f[2]; got != want {
			t.Errorf("%s: declared %q: expected %q", f[0], got, want)
		}
		delete(declared, f[0])
	}
	if rows != 82 {
		t.Errorf("the table has %d rows: expected 82", rows)
	}
	for path := range declared {
		t.Errorf("%s: declared, but not in the table", path)
	}
}

func TestIDsAreFieldNames(t *testing.T) {
	want := map[string]string{
		"root":                                   "/",
		"system.preseed":                         "/containerd/preseed",
		"system.bin":                             "/containerd/bin",
		"system.conf.containerd":                 "/containerd/conf/config.toml",
		"system.conf.runsc":                      "/containerd/conf/runsc.toml",
		"esp.efi.metropolis.boot_a":              "/esp/EFI/metropolis/boot-a.efi",
		"data.containerd":                        "/data/containerd",
		"data.etcd.peer_pki.ca_certificate":      "/data/etcd/peer_pki/ca.pem",
		"data.kubernetes.kubelet.plugins.vfs":    "/data/kubernetes/kubelet/plugins/dev.monogon.metropolis.vfs.sock",
		"data.kubernetes.kubelet.plugins.kvm":    "/data/kubernetes/kubelet/plugins/devices.monogon.dev_kvm.sock",
		"ephemeral.consensus.server_logs_fifo":   "/ephemeral/consensus/server-logs.fifo",
		"ephemeral.containerd.client_socket":     "/ephemeral/containerd/client.sock",
		"ephemeral.containerd.runsc_logs_fifo":   "/ephemeral/containerd/runsc-logs.fifo",
		"ephemeral.containerd.cni_cache":         "/ephemeral/containerd/cni-cache",
		"ephemeral.containerd.tmp":               "/ephemeral/containerd/tmp",
		"ephemeral.containerd.runsc":             "/ephemeral/containerd/runsc",
		"ephemeral.machine_id":                   "/ephemeral/machine-id",
		"run.containerd":                         "/run/containerd",
		"data.kubernetes.csi_provisioner.pki":    "/data/kubernetes/csiprovisioner/pki",
		"data.kubernetes.cluster_networking.key": "/data/kubernetes/clusternet/private.key",
	}
	for _, n := range builtin(t, "node").Nodes {
		if path, ok := want[n.ID]; ok && path != n.Path {
			t.Errorf("%s is %s: expected %s", n.ID, n.Path, path)
		}
		delete(want, n.ID)
	}
	for id := range want {
		t.Errorf("%s: no such node", id)
	}
}

func TestBuiltinLayoutsHaveTheSameIDs(t *testing.T) {
	ids := func(l *Layout) (ids []string) {
		for _, n := range l.Nodes {
			ids = append(ids, n.ID)
		}
		return ids
	}
	if !slices.Equal(ids(builtin(t, "node")), ids(builtin(t, "fhs"))) {
		t.Error("node and fhs have different ids")
	}
	for _, m := range builtin(t, "fhs").Mounts {
		if m.Policy == PolicyRequire {
			t.Errorf("fhs requires the mount %s", m.ID)
		}
	}
	if _, err := Builtin("bogus"); err == nil {
		t.Error("a layout called bogus")
	}
}

func TestFHSPaths(t *testing.T) {
	want := map[string]string{
		"data.containerd":                    "/var/lib/containerd",
		"data.etcd":                          "/var/lib/etcd",
		"data.kubernetes.kubelet":            "/var/lib/kubelet",
		"ephemeral.containerd":               "/run/containerd",
		"ephemeral.containerd.client_socket": "/run/containerd/containerd.sock",
		"system.bin":                         "/var/lib/seedbed/bin",
		"system.preseed":                     "/var/lib/seedbed/preseed",
		"system.conf.containerd":             "/etc/containerd/config.toml",
		"etc.hosts":                          "/etc/hosts",
	}
	for _, n := range builtin(t, "fhs").Nodes {
		if path, ok := want[n.ID]; ok && path != n.Path {
			t.Errorf("%s is %s: expected %s", n.ID, n.Path, path)
		}
	}
}

func TestHandles(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	m := place(t, builtin(t, "node"), root).Manifest
	want := root + "/ephemeral/containerd/client.sock"
	if got := m.Tree().Ephemeral.Containerd.ClientSocket.FullPath(); got != want {
		t.Errorf("handle: %q: expected %q", got, want)
	}
	if got := m.Tree().FullPath(); got != root {
		t.Errorf("handle of the root: %q: expected %q", got, root)
	}
	if got, err := m.FullPath("ephemeral.containerd.client_socket"); got != want || err != nil {
		t.Errorf("FullPath: %q, %v: expected %q", got, err, want)
	}
	_, err := m.FullPath("containerd.client_socket")
	var unknown *UnknownNode
	if !errors.As(err, &unknown) || !slices.Contains(unknown.Nearest, "ephemeral.containerd.client_socket") {
		t.Errorf("FullPath of a wrong id: %v: expected the right one as a hint", err)
	}
	foreign := place(t, layout(t, "dir /x 0755"), t.TempDir()).Manifest
	if got := foreign.Tree().Data.FullPath(); got != "" {
		t.Errorf("handle of a node that the layout does not have: %q: expected nothing", got)
	}
}

// TestS05 also covers what Go structs can get wrong.
func TestS05DeclarationOfStructs(t *testing.T) {
	cases := []struct {
		name           string
		tree           any
		position, fact string
	}{
		{"untagged child", &struct {
			Directory
			A Directory
		}{}, ".A", "neither a dir nor a file tag"},
		{"empty", &struct {
			Directory
			A Directory `dir:""`
		}{}, ".A", "name is empty"},
		{"dot", &struct {
			Directory
			A Directory `dir:"."`
		}{}, ".A", `"."`},
		{"dot dot", &struct {
			Directory
			A File `file:".."`
		}{}, ".A", `".."`},
		{"slash", &struct {
			Directory
			A File `file:"/etc/passwd"`
		}{}, ".A", "slash"},
		{"NUL", &struct {
			Directory
			A File `file:"a\x00b"`
		}{}, ".A", "control character"},
		{"duplicate among files and directories (S04)", &struct {
			Directory
			A File      `file:"x"`
			B Directory `dir:"x"`
		}{}, ".B", "same name as A"},
		{"both tags", &struct {
			Directory
			A File `file:"x" dir:"x"`
		}{}, ".A", "both"},
		{"file tag on a directory", &struct {
			Directory
			A Directory `file:"x"`
		}{}, ".A", "not of type File"},
		{"no Directory inside", &struct {
			Directory
			A struct{ B File } `dir:"x"`
		}{}, ".A", "does not embed Directory"},
		{"mode", &struct {
			Directory
			A File `file:"x" mode:"rw"`
		}{}, ".A", "octal"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := declare("test", c.tree)
			var v *ValidationError
			if !errors.As(err, &v) || v.Position != c.position || !strings.Contains(v.Fact, c.fact) {
				t.Errorf("declare: %v: expected %s: …%s…", err, c.position, c.fact)
			}
		})
	}
}

func TestLayoutSurvivesItsJSON(t *testing.T) {
	for _, name := range BuiltinNames() {
		l := builtin(t, name)
		data, err := json.Marshal(l)
		must(t, err)
		again, err := parseLayout(string(data))
		must(t, err)
		if again.Digest() != l.Declaration {
			t.Errorf("%s: declaration %s after a round trip: expected %s", name, again.Digest(), l.Declaration)
		}
	}
}
