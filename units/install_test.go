package units

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

const wants = Directory + "/multi-user.target.wants/seedbed.target"

func install(t *testing.T, root string, p Params, enable bool) []string {
	t.Helper()
	changed, err := Install(root, p, enable)
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

// unitPaths are where all units stand when they are installed.
func unitPaths() []string {
	var paths []string
	for _, name := range Names() {
		paths = append(paths, filepath.Join(Directory, name))
	}
	return paths
}

func TestInstall(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	root := t.TempDir()

	if got, want := install(t, root, Params{}, false), unitPaths(); !slices.Equal(got, want) {
		t.Errorf("the first run changed %q, want %q", got, want)
	}
	for _, name := range Names() {
		file := filepath.Join(root, Directory, name)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if string(text) != string(render(t, name, Params{})) {
			t.Errorf("%s does not hold the unit", file)
		}
		wantMode(t, file, 0o644)
	}
	wantMode(t, filepath.Join(root, "etc"), 0o755|os.ModeDir)
	wantMode(t, filepath.Join(root, Directory), 0o755|os.ModeDir)
	if got := install(t, root, Params{}, false); len(got) != 0 {
		t.Errorf("the second run changed %q", got)
	}
	if _, err := os.Lstat(filepath.Join(root, wants)); err == nil {
		t.Error("enabled without being asked")
	}
	entries, err := os.ReadDir(filepath.Join(root, Directory))
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != len(Names()) {
		t.Errorf("%d entries in %s: something was left beside the units", len(entries), Directory)
	}
}

func wantMode(t *testing.T, path string, want os.FileMode) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != want {
		t.Errorf("%s has mode %s, want %s", path, info.Mode(), want)
	}
}

func TestInstallWritesWhatDiffers(t *testing.T) {
	root := t.TempDir()
	install(t, root, Params{}, true)
	got := install(t, root, Params{Paths: Paths{RunscLogsFIFO: "/run/other.fifo"}}, true)
	if want := []string{Directory + "/seedbed-runsc-log.socket"}; !slices.Equal(got, want) {
		t.Errorf("changed %q, want %q", got, want)
	}
}

// An image is enabled without a running systemd, so the link must lead to the unit inside the image.
func TestInstallEnables(t *testing.T) {
	root := t.TempDir()
	install(t, root, Params{}, false)
	if got := install(t, root, Params{}, true); !slices.Equal(got, []string{wants}) {
		t.Errorf("enabling changed %q, want %q", got, wants)
	}
	if _, err := os.Stat(filepath.Join(root, wants)); err != nil {
		t.Errorf("the link leads nowhere: %v", err)
	}
	if got := install(t, root, Params{}, true); len(got) != 0 {
		t.Errorf("enabling again changed %q", got)
	}
}

// `systemctl enable` makes an absolute link: it is enabled already.
func TestInstallKeepsALinkOfSystemctl(t *testing.T) {
	root := t.TempDir()
	install(t, root, Params{}, false)
	link := filepath.Join(root, wants)
	if err := os.Mkdir(filepath.Dir(link), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(Directory+"/seedbed.target", link); err != nil {
		t.Fatal(err)
	}
	if got := install(t, root, Params{}, true); len(got) != 0 {
		t.Errorf("changed %q", got)
	}
}

// A mask is the administrator's word; nothing is written beside it.
func TestInstallLeavesWhatIsNotAFile(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"a mask":      func(path string) error { return os.Symlink("/dev/null", path) },
		"a directory": func(path string) error { return os.Mkdir(path, 0o755) },
		"a FIFO":      func(path string) error { return syscall.Mkfifo(path, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			dir := filepath.Join(root, Directory)
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := put(filepath.Join(dir, "seedbed-preseed.service")); err != nil {
				t.Fatal(err)
			}
			_, err := Install(root, Params{}, true)
			var conflict *Conflict
			if !errors.As(err, &conflict) || conflict.Path != Directory+"/seedbed-preseed.service" || conflict.Hint() == "" {
				t.Errorf("got %v, want a *Conflict on the preseed unit", err)
			}
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			if len(entries) != 1 {
				t.Errorf("%d entries: units were written beside the conflict", len(entries))
			}
		})
	}
}

// A link in the image that is meant for the image must not lead the installation to the host.
func TestInstallStaysInTheRoot(t *testing.T) {
	root, host := t.TempDir(), t.TempDir()
	if err := os.Symlink(host, filepath.Join(root, "etc")); err != nil {
		t.Fatal(err)
	}
	if _, err := Install(root, Params{}, true); err == nil {
		t.Error("installed through a link out of the root")
	}
	entries, err := os.ReadDir(host)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 0 {
		t.Errorf("wrote %v outside of the root", entries)
	}
}

func TestInstallIntoNothing(t *testing.T) {
	_, err := Install(filepath.Join(t.TempDir(), "absent"), Params{}, false)
	if !errors.Is(err, os.ErrNotExist) || strings.Contains(err.Error(), "failed") {
		t.Errorf("got %v, want the system's error for a root that is not there", err)
	}
}

// An image may have its units elsewhere, by a link that is meant for the booted image: it leads inside of the root.
func TestInstallThroughALinkOfTheImage(t *testing.T) {
	for _, target := range []string{"/srv/units", "../../srv/units", "../../../../srv/units"} {
		root := t.TempDir()
		symlink(t, root, target, Directory)
		if err := os.MkdirAll(filepath.Join(root, "srv/units"), 0o755); err != nil {
			t.Fatal(err)
		}
		install(t, root, Params{}, true)
		for _, file := range []string{"/srv/units/seedbed.target", "/srv/units/multi-user.target.wants/seedbed.target"} {
			if _, err := os.Lstat(filepath.Join(root, file)); err != nil {
				t.Errorf("%s: %v", target, err)
			}
		}
		if got := install(t, root, Params{}, true); len(got) != 0 {
			t.Errorf("%s: the second run changed %q", target, got)
		}
	}
}

func TestInstallThroughALinkToItself(t *testing.T) {
	root := t.TempDir()
	symlink(t, root, "system", Directory)
	if _, err := Install(root, Params{}, false); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("got %v, want ELOOP", err)
	}
}
