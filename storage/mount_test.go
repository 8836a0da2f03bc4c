package storage

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"
)

// privateRoot gives the test a mount namespace of its own, which ends with the test, and a tmpfs in it as the root.
func privateRoot(t *testing.T) string {
	t.Helper()
	needRoot(t)
	runtime.LockOSThread() // and never unlocked: the thread and its namespace end with the test's goroutine
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		t.Skipf("needs a mount namespace: %v", err)
	}
	must(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	root := t.TempDir()
	must(t, unix.Mount("root", root, "tmpfs", 0, "mode=0755"))
	t.Cleanup(func() { unix.Unmount(root, unix.MNT_DETACH) })
	return root
}

// onXFS mounts a new xfs at the directory with mount(8)'s options.
func onXFS(t *testing.T, at, options string) {
	t.Helper()
	image := filepath.Join(t.TempDir(), "xfs")
	must(t, os.WriteFile(image, nil, 0o600))
	must(t, os.Truncate(image, 512<<20))
	must(t, os.MkdirAll(at, 0o755))
	for _, command := range [][]string{{"mkfs.xfs", "-q", image}, {"mount", "-o", "loop," + options, image, at}} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Skipf("needs xfs and loop devices: %s: %v: %s", command[0], err, out)
		}
	}
	t.Cleanup(func() { unix.Unmount(at, unix.MNT_DETACH) })
}

// mountAt returns what is mounted at a path, nil for nothing.
func mountAt(t *testing.T, name string) *mounted {
	t.Helper()
	fd, err := openPath(name)
	must(t, err)
	defer unix.Close(fd)
	r, err := mountOf(fd, "")
	must(t, err)
	if !r.isRoot {
		return nil
	}
	m, err := r.info()
	must(t, err)
	return m
}

// withMount is a layout with a mount at /m and some nodes on it.
func withMount(t *testing.T, m Mount, lines ...string) *Layout {
	t.Helper()
	l := layout(t, append([]string{"dir /m 0750"}, lines...)...)
	m.ID, m.Path = "m", "/m"
	for i := range l.Nodes {
		if strings.HasPrefix(l.Nodes[i].Path, "/m") {
			l.Nodes[i].Mount = "m"
		}
	}
	l.Mounts = []Mount{m}
	l.Declaration = l.Digest()
	return l
}

func apply(root string) PlaceOptions { return PlaceOptions{Root: root, Mounts: MountsApply} }

// The node layout on a host: data is required, ephemeral is made.
func TestMountsOfTheNode(t *testing.T) {
	root := privateRoot(t)
	l := builtin(t, "node")
	for _, m := range place(t, l, root).Manifest.Mounts {
		if m.State != MountIgnored {
			t.Errorf("%s is %s: expected ignored in a root that is not /", m.ID, m.State)
		}
	}
	before := snapshot(t, root)
	r, err := Place(t.Context(), l, apply(root))
	var bad *BadMount
	if !errors.As(err, &bad) || bad.ID != "data" || bad.Got != "no mount point" || bad.Hint() == "" {
		t.Fatalf("Place: %v: expected that data is no mount point", err)
	}
	if got := steps(r.Plan, ActionConflict); len(got) != 1 {
		t.Errorf("conflicts: %v: expected one", got)
	}
	untouched(t, root, before)
	if mountAt(t, root+"/ephemeral") != nil {
		t.Error("ephemeral was mounted although data is missing")
	}

	onXFS(t, root+"/data", "noexec")
	r, err = Place(t.Context(), l, apply(root))
	must(t, err)
	if got := steps(r.Plan, ActionMount); len(got) != 1 || !strings.HasPrefix(got[0], "/ephemeral a directory with entries") {
		t.Errorf("mount steps: %v", got)
	}
	want := map[string]string{"esp": MountAbsent, "data": MountMounted, "ephemeral": MountMounted, "tmp": MountAbsent, "run": MountAbsent}
	for _, m := range r.Manifest.Mounts {
		if m.State != want[m.ID] {
			t.Errorf("%s is %s: expected %s", m.ID, m.State, want[m.ID])
		}
	}
	m := mountAt(t, root+"/ephemeral")
	if m == nil || m.fsType != "tmpfs" || !m.has("nosuid") || !m.has("nodev") || m.has("noexec") {
		t.Fatalf("ephemeral: %+v: expected a tmpfs with nosuid and nodev", m)
	}
	if got := modeOf(t, root+"/ephemeral/flexvolume_plugins"); got != unix.S_IFDIR|0o555 {
		t.Errorf("mode %o below the new mount", got)
	}
	before = snapshot(t, root)
	again, err := Place(t.Context(), l, apply(root))
	must(t, err)
	if again.Plan.Changed() != 0 || again.Written || mountAt(t, root+"/ephemeral").id != m.id {
		t.Errorf("the second run: %d changed, written %v", again.Plan.Changed(), again.Written)
	}
	untouched(t, root, before)
	if drifts, err := Check(t.Context(), r.Manifest); err != nil || len(drifts) != 0 {
		t.Errorf("Check: %v, %v", drifts, err)
	}
	must(t, unix.Unmount(root+"/ephemeral", 0))
	must(t, unix.Mount("", root+"/data", "", unix.MS_REMOUNT|unix.MS_BIND, ""))
	drifts, err := Check(t.Context(), r.Manifest)
	must(t, err)
	if len(drifts) < 2 || drifts[0].ID != "ephemeral" || drifts[0].Got != "no mount point" || drifts[1].ID != "data" || !strings.Contains(drifts[1].Got, "without option noexec") {
		t.Errorf("Check: %v: expected the lost mount and the changed one first", drifts)
	}
}

func TestMountIsRefused(t *testing.T) {
	tmpfs := func(data string, flags uintptr) func(*testing.T, string) {
		return func(t *testing.T, at string) {
			must(t, os.Mkdir(at, 0o755))
			must(t, unix.Mount("source", at, "tmpfs", flags, data))
		}
	}
	cases := []struct {
		name string
		make func(t *testing.T, at string)
		want Mount
		got  string // in the message; "" for none
	}{
		{"the right one", tmpfs("size=64m", unix.MS_NOEXEC), Mount{FSType: "tmpfs", Source: "source", Size: "64m", Options: []string{"noexec", "rw", "size=65536k"}}, ""},
		{"another type", tmpfs("", 0), Mount{FSType: "xfs"}, "found tmpfs from source"},
		{"another source", tmpfs("", 0), Mount{FSType: "tmpfs", Source: "/dev/sda1"}, "expected a mount of tmpfs from /dev/sda1"},
		{"an option less", tmpfs("", unix.MS_NODEV), Mount{FSType: "tmpfs", Options: []string{"nodev", "nosuid"}}, "without option nosuid"},
		{"read-only", tmpfs("", unix.MS_RDONLY), Mount{FSType: "tmpfs", Options: []string{"rw"}}, "without option rw"},
		{"too small", tmpfs("size=1m", 0), Mount{FSType: "tmpfs", Size: "2m"}, "of 1 MiB"},
		{"on no device", tmpfs("", 0), Mount{FSType: "tmpfs", Encryption: EncryptionDMCrypt}, "on no block device"},
		{"on a plain device", func(t *testing.T, at string) { onXFS(t, at, "rw") }, Mount{FSType: "xfs", Encryption: EncryptionDMCrypt}, "is not encrypted"},
		{"hidden by another", func(t *testing.T, at string) {
			tmpfs("", 0)(t, at)
			must(t, unix.Mount("top", at, "ramfs", 0, ""))
		}, Mount{FSType: "tmpfs"}, "found ramfs from top"},
		{"nothing", func(t *testing.T, at string) { must(t, os.Mkdir(at, 0o755)) }, Mount{FSType: "tmpfs"}, "found no mount point"},
		{"nothing, and no directory", func(*testing.T, string) {}, Mount{FSType: "tmpfs"}, "found no mount point"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			root := privateRoot(t)
			c.make(t, root+"/m")
			c.want.Policy = PolicyRequire
			l := withMount(t, c.want, "dir /m/sub 0755", "dir /other 0755")
			before := snapshot(t, root)
			_, err := Place(t.Context(), l, apply(root))
			if c.got == "" {
				must(t, err)
				return
			}
			var bad *BadMount
			if !errors.As(err, &bad) || !strings.Contains(err.Error(), c.got) || bad.Hint() == "" {
				t.Errorf("Place: %v: expected …%s…", err, c.got)
			}
			if strings.Contains(c.name, "hidden") && !strings.Contains(bad.Advice, "hidden below it") {
				t.Errorf("advice: %s", bad.Advice)
			}
			untouched(t, root, before)
			if c.name == "read-only" {
				return // preferring it does not make it writable
			}
			l.Mounts[0].Policy = PolicyPrefer // the same is only warned about
			r, err := Place(t.Context(), l, apply(root))
			must(t, err)
			if exists := mountAt(t, root+"/m") != nil; exists != (len(r.Plan.Warnings) > 0) {
				t.Errorf("warnings: %v", r.Plan.Warnings)
			}
		})
	}
}

func TestMakeGivesTheMountWhatWasAskedFor(t *testing.T) {
	root := privateRoot(t)
	l := withMount(t, Mount{Policy: PolicyMake, FSType: "tmpfs", Source: "mine", Size: "4m", Options: []string{"noexec", "noatime", "nr_inodes=99"}},
		"dir /m/a 2770", "fifo /m/a/f 0640", "symlink /m/l 0777 /nowhere")
	for i := range l.Nodes {
		l.Nodes[i].UID, l.Nodes[i].GID = 7, 8
	}
	dry, err := NewPlan(t.Context(), l, apply(root))
	must(t, err)
	if got := steps(dry, ActionMount); len(got) != 1 || got[0] != "/m an empty directory→tmpfs nr_inodes=99 size=4m noexec noatime 0750 7:8" {
		t.Errorf("dry run: %q", got)
	}
	if _, err := os.Lstat(root + "/m"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("the dry run made something: %v", err)
	}
	_, err = Place(t.Context(), l, apply(root))
	must(t, err)
	m := mountAt(t, root+"/m")
	if m == nil || m.source != "mine" || m.root != "/" || m.point != root+"/m" {
		t.Fatalf("mount: %+v", m)
	}
	for _, o := range []string{"noexec", "noatime", "size=4m", "nr_inodes=99", "mode=0750", "uid=7", "gid=8"} {
		if !m.has(o) {
			t.Errorf("option %s is missing: %v", o, m.options)
		}
	}
	for name, mode := range map[string]uint32{"": unix.S_IFDIR | 0o750, "/a": unix.S_IFDIR | 0o2770, "/a/f": unix.S_IFIFO | 0o640} {
		if got := modeOf(t, root+"/m"+name); got != mode {
			t.Errorf("/m%s has mode %o: expected %o", name, got, mode)
		}
	}
	if r, err := Place(t.Context(), l, apply(root)); err != nil || r.Plan.Changed() != 0 {
		t.Errorf("second run: %v", err)
	}
}

func TestABadOptionIsRefusedBeforeTheFirstWrite(t *testing.T) {
	root := privateRoot(t)
	l := withMount(t, Mount{Policy: PolicyMake, FSType: "tmpfs", Options: []string{"nosuch=1"}}, "dir /a 0755")
	before := snapshot(t, root)
	_, err := Place(t.Context(), l, apply(root))
	if !errors.As(err, new(*BadMount)) || !strings.Contains(err.Error(), "Unknown parameter 'nosuch'") {
		t.Errorf("Place: %v: expected the kernel's word on the option", err)
	}
	untouched(t, root, before)
}

func TestMountsInMounts(t *testing.T) {
	root := privateRoot(t)
	l := withMount(t, Mount{Policy: PolicyMake, FSType: "tmpfs"}, "dir /m/in 0700", "dir /m/in/deep 0711", "dir /m/z 0700")
	l.Nodes[1].Mount, l.Nodes[2].Mount = "m.in", "m.in"
	l.Mounts = append(l.Mounts, Mount{ID: "m.in", Path: "/m/in", Policy: PolicyMake, FSType: "tmpfs", Options: []string{"ro"}})
	_, err := Place(t.Context(), l, apply(root))
	if !errors.Is(err, unix.EROFS) {
		t.Errorf("Place: %v: expected that nothing can be made on a read-only mount", err)
	}
	if _, err := os.Lstat(root + "/m"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a mount or its mount point is left: %v", err)
	}
	l.Mounts[1].Options = nil
	_, err = Place(t.Context(), l, apply(root))
	must(t, err)
	outer, inner := mountAt(t, root+"/m"), mountAt(t, root+"/m/in")
	if outer == nil || inner == nil || inner.parent != outer.id {
		t.Fatalf("outer %+v, inner %+v", outer, inner)
	}
	if got := modeOf(t, root+"/m/in/deep"); got != unix.S_IFDIR|0o711 {
		t.Errorf("mode %o", got)
	}
}

func TestAMountIsTakenBack(t *testing.T) {
	root := privateRoot(t)
	l := withMount(t, Mount{Policy: PolicyMake, FSType: "tmpfs"}, "dir /m/a 0700", "fifo /m/a/f 0600", "dir /z 0700")
	w, err := newWalker(root)
	must(t, err)
	defer w.Close()
	o, err := apply(root).withDefaults()
	must(t, err)
	p, err := newPlan(t.Context(), w, l, o)
	must(t, err)
	j := &journal{}
	must(t, j.run(context.Background(), p.Steps))
	must(t, j.attach())
	if mountAt(t, root+"/m") == nil {
		t.Fatal("nothing is mounted")
	}
	write(t, root+"/m/a/theirs", "keep me")
	if undone := j.undo(); undone == len(j.done) || mountAt(t, root+"/m") == nil {
		t.Errorf("%d of %d undone: expected that a mount in which others have files stays", undone, len(j.done))
	}
	must(t, unix.Unmount(root+"/m", unix.MNT_DETACH))
	must(t, os.RemoveAll(root+"/m"))
	must(t, os.MkdirAll(root+"/run", 0o755))
	must(t, os.WriteFile(root+"/run/seedbed", nil, 0o600)) // the manifest's directory: found only by the plan
	before := snapshot(t, root)
	if _, err := Place(t.Context(), l, apply(root)); err == nil {
		t.Fatal("Place: expected a conflict")
	}
	untouched(t, root, before)
}

func TestAMountThatCameMeanwhileStaysOnTop(t *testing.T) {
	root := privateRoot(t)
	l := withMount(t, Mount{Policy: PolicyMake, FSType: "tmpfs"}, "dir /m/a 0700")
	must(t, os.Mkdir(root+"/m", 0o755))
	w, err := newWalker(root)
	must(t, err)
	defer w.Close()
	o, err := apply(root).withDefaults()
	must(t, err)
	p, err := newPlan(t.Context(), w, l, o)
	must(t, err)
	must(t, unix.Mount("theirs", root+"/m", "tmpfs", 0, ""))
	_, err = p.finish(t.Context(), &journal{}, p.Steps)
	if !errors.As(err, new(*Conflict)) {
		t.Errorf("finish: %v: expected a conflict", err)
	}
	if m := mountAt(t, root+"/m"); m == nil || m.source != "theirs" || m.below() != nil {
		t.Errorf("mount: %+v: expected theirs alone", m)
	}
}

func TestStackedMountsAreTold(t *testing.T) {
	root := privateRoot(t)
	must(t, os.Mkdir(root+"/m", 0o755))
	must(t, unix.Mount("one", root+"/m", "tmpfs", 0, ""))
	must(t, unix.Mount("two", root+"/m", "tmpfs", 0, ""))
	l := withMount(t, Mount{Policy: PolicyMake, FSType: "tmpfs"})
	r, err := Place(t.Context(), l, apply(root))
	must(t, err)
	if text := strings.Join(r.Plan.Warnings, "\n"); !strings.Contains(text, "tmpfs from two hides tmpfs from one") {
		t.Errorf("warnings: %s", text)
	}
	if len(steps(r.Plan, ActionMount)) != 0 {
		t.Error("a third one was mounted")
	}
}

func TestAnotherMountNamespaceIsTold(t *testing.T) {
	root := privateRoot(t)
	must(t, os.Mkdir(root+"/m", 0o755))
	must(t, unix.Mount("one", root+"/m", "tmpfs", 0, ""))
	fd, err := openPath(root + "/m")
	must(t, err)
	defer unix.Close(fd)
	must(t, unix.Unshare(unix.CLONE_NEWNS)) // the descriptor stays in the one before
	r, err := mountOf(fd, "")
	must(t, err)
	if m, err := r.info(); !errors.Is(err, errForeignMount) {
		t.Errorf("info: %+v, %v: expected another namespace's mount", m, err)
	}
	r.unique = 0
	if m, err := r.info(); !errors.Is(err, errForeignMount) {
		t.Errorf("info from mountinfo: %+v, %v: expected another namespace's mount", m, err)
	}
}

func TestMountinfoSaysTheSameAsStatmount(t *testing.T) {
	root := privateRoot(t)
	at := root + "/with space\tand\\more"
	must(t, os.Mkdir(at, 0o755))
	must(t, unix.Mount("so urce", at, "tmpfs", unix.MS_NOSUID|unix.MS_NOATIME, "size=1m,mode=0700"))
	must(t, os.Mkdir(at+"/sub", 0o755))
	must(t, unix.Mount(at+"/sub", at+"/sub", "", unix.MS_BIND, ""))
	for _, name := range []string{at, at + "/sub"} {
		fd, err := openPath(name)
		must(t, err)
		defer unix.Close(fd)
		r, err := mountOf(fd, "")
		must(t, err)
		if r.unique == 0 {
			t.Skip("the kernel has no unique mount ids")
		}
		new, err := r.info()
		must(t, err)
		r.unique = 0
		old, err := r.info()
		must(t, err)
		slices.Sort(new.options)
		slices.Sort(old.options)
		if old.fsType != new.fsType || old.source != new.source || old.root != new.root || old.point != new.point ||
			old.major != new.major || old.minor != new.minor || !slices.Equal(old.options, new.options) {
			t.Errorf("mountinfo says\n%+v\nstatmount\n%+v", old, new)
		}
	}
}

// What a device stands on, as /sys/dev/block shows it; there is no device mapper on every machine that tests run on.
func TestEncrypted(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	sys := fstest.MapFS{
		"8:1/size":                          file("1"),
		"253:0/dm/uuid":                     file("CRYPT-LUKS2-0123456789abcdef-data\n"),
		"253:0/slaves/sda1/size":            file("1"),
		"253:1/dm/uuid":                     file("LVM-abc\n"),
		"253:1/slaves/dm-0/dm/uuid":         file("CRYPT-LUKS2-0123456789abcdef-pv\n"),
		"253:2/dm/uuid":                     file("LVM-abc\n"),
		"253:2/slaves/dm-0/dm/uuid":         file("CRYPT-LUKS2-0123456789abcdef-pv\n"),
		"253:2/slaves/sdb/size":             file("1"),
		"253:3/dm/uuid":                     file("CRYPT-VERITY-abc-root\n"),
		"253:3/slaves/sdc/size":             file("1"),
		"253:4/dm/uuid":                     file("CRYPT-INTEGRITY-abc-i\n"),
		"253:4/slaves/dm-0/dm/uuid":         file("CRYPT-PLAIN-x\n"),
		"9:0/slaves/dm-0/dm/uuid":           file("CRYPT-LUKS1-0-a\n"),
		"9:0/slaves/dm-1/slaves/sdd/size":   file("1"),
		"9:1/slaves/dm-0/dm/uuid":           file("CRYPT-LUKS1-0-a\n"),
		"9:1/slaves/dm-1/slaves/x/dm/uuid":  file("CRYPT-LUKS2-0-b\n"),
		"9:1/slaves/dm-1/slaves/x/dm/other": file(""),
	}
	for name, want := range map[string]bool{
		"8:1": false, "253:0": true, "253:1": true, "253:2": false, "253:3": false, "253:4": true, "9:0": false, "9:1": true, "7:7": false,
	} {
		if err := encryptedDevice(sys, name, 0); (err == nil) != want {
			t.Errorf("device %s: %v: expected encrypted %v", name, err, want)
		}
	}
}

// The source of an encrypted mount may be the partition below the mapping.
func TestDeviceStandsOn(t *testing.T) {
	number := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text + "\n")} }
	sys := fstest.MapFS{
		"253:1/dev": number("253:1"), "253:1/slaves/dm-0/dev": number("253:0"), "253:1/slaves/dm-0/slaves/sda1/dev": number("8:1"),
		"8:2/dev": number("8:2"),
	}
	for _, test := range []struct {
		device, on string
		want       bool
	}{{"253:1", "8:1", true}, {"253:1", "253:1", true}, {"253:1", "8:2", false}, {"8:2", "8:1", false}, {"7:7", "8:1", false}} {
		if got := deviceStandsOn(sys, test.device, test.on, 0); got != test.want {
			t.Errorf("%s on %s: %v", test.device, test.on, got)
		}
	}
}

func TestAUserCannotMount(t *testing.T) {
	root := userDir(t)
	l := withMount(t, Mount{Policy: PolicyMake, FSType: "tmpfs"})
	err := asUser(t, func() error {
		_, err := Place(context.Background(), l, apply(root))
		return err
	})
	if !errors.Is(err, fs.ErrPermission) {
		t.Errorf("Place: %v: expected no permission", err)
	}
	if entries, err := os.ReadDir(root); err != nil || len(entries) != 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
}

func TestMountOptions(t *testing.T) {
	m := &mounted{options: strings.Split("rw,nosuid,relatime,fmask=0077,dmask=0077,size=65536k,subvol=/a", ",")}
	for option, want := range map[string]bool{
		"rw": true, "ro": false, "nosuid": true, "suid": false, "dev": true, "exec": true, "defaults": true, "umask=077": true,
		"umask=0022": false, "size=64m": true, "size=1g": false, "size=50%": true, "subvol=/a": true, "subvol=/b": false, "atime": true, "noatime": false,
	} {
		if got := m.has(option); got != want {
			t.Errorf("%s: %v: expected %v", option, got, want)
		}
	}
	for size, want := range map[string]uint64{"1": 1, "2k": 2048, "3M": 3 << 20, "4g": 4 << 30, "1t": 1 << 40, "": 0, "x": 0, "1kk": 0, "-1": 0, "99999999999t": 0} {
		if got := bytesOf(size); got != want {
			t.Errorf("size %q: %d: expected %d", size, got, want)
		}
	}
}
