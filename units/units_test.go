package units

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coreos/go-systemd/v22/unit"
)

// options returns a unit's settings, "Section.Name" to the values in their order.
func options(t testing.TB, text []byte) map[string][]string {
	t.Helper()
	all, err := unit.DeserializeOptions(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("read unit: %v\n%s", err, text)
	}
	found := map[string][]string{}
	for _, o := range all {
		key := o.Section + "." + o.Name
		found[key] = append(found[key], o.Value)
	}
	return found
}

func render(t testing.TB, name string, p Params) []byte {
	t.Helper()
	text, err := Render(name, p)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// The embedded files are the units of a node, to the byte: what one reads is what runs.
func TestZeroParamsChangeNothing(t *testing.T) {
	for _, name := range Names() {
		embedded, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := render(t, name, Params{}); !bytes.Equal(got, embedded) {
			t.Errorf("%s rendered with zero params differs from the file:\n%s", name, got)
		}
	}
}

func TestNamesAreTheFiles(t *testing.T) {
	embedded, err := fs.Glob(files, "*")
	if err != nil {
		t.Fatal(err)
	}
	names := Names()
	slices.Sort(names)
	if !slices.Equal(names, embedded) {
		t.Errorf("names %q, files %q", names, embedded)
	}
}

// What the units promise, each with the reason why a change is a mistake.
func TestPromises(t *testing.T) {
	const storage, socket, containerd, preseed, target = "seedbed-storage.service", "seedbed-runsc-log.socket",
		"seedbed-containerd.service", "seedbed-preseed.service", "seedbed.target"
	tests := []struct{ name, setting, want, why string }{
		{storage, "Service.Type", "notify", "READY=1 means that the manifest is on disk"},
		{storage, "Service.NotifyAccess", "main", "no child may speak for seedbed"},
		{storage, "Service.RemainAfterExit", "yes", "inactive after its exit, it would not hold what requires it"},
		{storage, "Service.ExecStart", "/usr/bin/seedbed storage place", "the node's layout is the default"},
		{storage, "Unit.RequiresMountsFor", "/data/containerd /ephemeral/containerd /containerd/preseed", "a tree under a mount point would be hidden"},
		{storage, "Unit.PartOf", target, "the group stops together"},

		{socket, "Unit.DefaultDependencies", "no", "sockets.target is before every service, storage is before this socket: a cycle"},
		{socket, "Unit.After", storage, "the FIFO lies on the tree"},
		{socket, "Unit.Requires", storage, "systemd would make the parents, on whatever is there"},
		{socket, "Unit.Conflicts", "shutdown.target", "without default dependencies nothing else stops it"},
		{socket, "Unit.PartOf", target, "the group stops together"},
		{socket, "Socket.ListenFIFO", "/ephemeral/containerd/runsc-logs.fifo", "runsc writes there"},
		{socket, "Socket.SocketMode", "0600", "systemd refuses a FIFO of another mode than the tree's"},
		{socket, "Socket.PipeSize", "1M", "room for 10,000 lines while nobody reads"},
		{socket, "Socket.Service", containerd, "it reads the FIFO"},

		{containerd, "Service.Type", "notify", "READY=1 means that containerd answers"},
		{containerd, "Service.NotifyAccess", "main", "containerd has its own READY=1, and it is not the one that counts"},
		{containerd, "Service.ExecStart", "/usr/bin/seedbed containerd run", ""},
		{containerd, "Service.ExecStartPre", "-/sbin/modprobe overlay", "with -: no modprobe, or overlay built in, is no failure"},
		{containerd, "Service.Sockets", socket, "the FIFO comes with an explicit start too"},
		{containerd, "Service.Delegate", "yes", "the runtimes make cgroups below it"},
		{containerd, "Service.KillMode", "process", "containers outlive containerd"},
		{containerd, "Service.Restart", "always", "a node without containerd is lost"},
		{containerd, "Service.RestartSec", "5s", "no restart storm"},
		{containerd, "Service.TasksMax", "infinity", "its tasks are those of all shims"},
		{containerd, "Service.LimitCORE", "infinity", "a crashed containerd leaves its core"},
		{containerd, "Service.LimitNOFILE", "1024:524288", "the soft limit is the containers', the hard one containerd's"},
		{containerd, "Service.OOMScoreAdjust", "-999", "the last to be killed for memory"},
		{containerd, "Service.LogRateLimitIntervalSec", "1s", "0 does not lift journald's limit"},
		{containerd, "Service.LogRateLimitBurst", "10000000", "no log line is lost"},
		{containerd, "Unit.After", storage + " " + socket + " network.target dbus.service", "the order, and runc asks systemd over the bus"},
		{containerd, "Unit.Requires", storage + " " + socket, "no containerd on a tree that is not there"},
		{containerd, "Unit.PartOf", target, "the group stops together"},

		{preseed, "Service.Type", "notify", "READY=1 means that every bundle is in"},
		{preseed, "Service.NotifyAccess", "main", ""},
		{preseed, "Service.RemainAfterExit", "yes", "started again with every start of the target otherwise"},
		{preseed, "Service.ExecStart", "/usr/bin/seedbed preseed import", ""},
		{preseed, "Service.Restart", "on-failure", "a containerd that went away comes back"},
		{preseed, "Service.RestartPreventExitStatus", "1 2 65 73 77 78", "a bad bundle stays bad"},
		{preseed, "Unit.After", containerd, "it needs the socket"},
		{preseed, "Unit.Requires", containerd, ""},
		{preseed, "Unit.Before", "kubelet.service", "the kubelet finds its images"},
		{preseed, "Unit.PartOf", target, "the group stops together"},

		{target, "Unit.Wants", storage + " " + socket + " " + containerd + " " + preseed, "a unit that fails or restarts must not stop the group"},
		{target, "Unit.After", storage + " " + socket + " " + containerd + " " + preseed, "the target is reached when the work is done"},
		{target, "Install.WantedBy", "multi-user.target", "enable"},
	}
	for _, test := range tests {
		got := options(t, render(t, test.name, Params{}))[test.setting]
		if !slices.Equal(got, []string{test.want}) {
			t.Errorf("%s: %s is %q, want %q: %s", test.name, test.setting, got, test.want, test.why)
		}
	}
}

// A mount namespace would keep what storage mounts from the host, and what containerd mounts from its containers.
func TestNoMountNamespace(t *testing.T) {
	for _, name := range []string{"seedbed-storage.service", "seedbed-containerd.service"} {
		for setting := range options(t, render(t, name, Params{})) {
			for _, prefix := range []string{"Protect", "Private", "ReadOnly", "ReadWrite", "Inaccessible", "Bind", "TemporaryFile", "Mount", "Root"} {
				if strings.HasPrefix(setting, "Service."+prefix) {
					t.Errorf("%s has %s", name, setting)
				}
			}
		}
	}
}

// otherHost differs from the node in everything.
var otherHost = Params{
	Binary: "/opt/seedbed/bin/seedbed",
	Layout: "fhs",
	Paths: Paths{
		ContainerdRoot:  "/var/lib/containerd",
		ContainerdState: "/run/containerd",
		RunscLogsFIFO:   "/run/containerd/runsc-logs.fifo",
		Temp:            "/var/tmp/seedbed",
		Preseed:         "/usr/share/preseed",
	},
}

func TestRenderPutsEveryPathIn(t *testing.T) {
	want := map[string][]string{
		"seedbed-storage.service": {
			"ExecStart=/opt/seedbed/bin/seedbed storage place --layout fhs",
			"RequiresMountsFor=/var/lib/containerd /run/containerd /usr/share/preseed",
		},
		"seedbed-runsc-log.socket": {"ListenFIFO=/run/containerd/runsc-logs.fifo"},
		"seedbed-containerd.service": {
			"ExecStart=/opt/seedbed/bin/seedbed containerd run",
			"RequiresMountsFor=/var/lib/containerd /run/containerd",
		},
		"seedbed-preseed.service": {
			"ExecStart=/opt/seedbed/bin/seedbed preseed import",
			"RequiresMountsFor=/usr/share/preseed", "ReadWritePaths=-/var/tmp/seedbed",
		},
	}
	n := node()
	for _, name := range Names() {
		text := string(render(t, name, otherHost))
		for _, line := range want[name] {
			if !strings.Contains(text, "\n"+line+"\n") {
				t.Errorf("%s has no line %q:\n%s", name, line, text)
			}
		}
		for _, old := range []string{n.Binary, n.ContainerdRoot, n.ContainerdState, " " + n.Preseed, "=" + n.Preseed} {
			if strings.Contains(text, old) {
				t.Errorf("%s still holds the node's %s", name, old)
			}
		}
	}
}

func TestRenderRefuses(t *testing.T) {
	for name, p := range map[string]Params{
		"a relative path":          {Binary: "seedbed"},
		"a path that is not clean": {Paths: Paths{Preseed: "/a/../b"}},
		"a space":                  {Paths: Paths{RunscLogsFIFO: "/run/runsc logs"}},
		"a line end":               {Paths: Paths{RunscLogsFIFO: "/run/x\nExecStart=/bin/sh"}},
		"a specifier":              {Paths: Paths{ContainerdRoot: "/srv/%n"}},
		"a variable":               {Binary: "/opt/$X/seedbed"},
		"no UTF-8":                 {Paths: Paths{Preseed: "/\xbd"}},
		"a path that is too long":  {Paths: Paths{Preseed: "/" + strings.Repeat("a", 4096)}},
		"a quote":                  {Paths: Paths{Temp: `/tmp/"`}},
		"a layout that is a flag":  {Layout: "--dry-run"},
	} {
		_, err := Render("seedbed-storage.service", p)
		if bad := (*BadParam)(nil); !errors.As(err, &bad) {
			t.Errorf("%s: %v, want a *BadParam", name, err)
		}
	}
	_, err := Render("kubelet.service", Params{})
	if unknown := (*UnknownUnit)(nil); !errors.As(err, &unknown) {
		t.Errorf("a unit that is not seedbed's: %v, want an *UnknownUnit", err)
	}
}

// Whatever stands in a path, the units keep their settings and the socket listens on that path and no other.
func FuzzRender(f *testing.F) {
	for _, path := range []string{"/run/x.fifo", "/a b", "/%n", "/x\n[Service]", "/ä/ö", `/\`, "/#", "/x;y"} {
		f.Add(path)
	}
	const name = "seedbed-runsc-log.socket"
	want := options(f, render(f, name, Params{}))
	f.Fuzz(func(t *testing.T, path string) {
		text, err := Render(name, Params{Paths: Paths{RunscLogsFIFO: path}})
		if err != nil || path == "" || len(path) > 1024 { // the parser below ends at lines of 2048 bytes
			return
		}
		got := options(t, text)
		if listens := got["Socket.ListenFIFO"]; !slices.Equal(listens, []string{path}) {
			t.Errorf("listens on %q, want %q", listens, path)
		}
		if len(got) != len(want) {
			t.Errorf("%d settings, want %d:\n%s", len(got), len(want), text)
		}
	})
}

func TestFindBinary(t *testing.T) {
	root := t.TempDir()
	if got := FindBinary(root); got != "/usr/bin/seedbed" {
		t.Errorf("nothing installed: %s, want the default", got)
	}
	for _, path := range []string{"/usr/local/bin/seedbed", "/usr/bin/seedbed"} {
		file := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o755); err != nil {
			t.Fatal(err)
		}
		if got := FindBinary(root); got != path {
			t.Errorf("with %s installed: %s", path, got)
		}
	}
}
