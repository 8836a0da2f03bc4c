package offline_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/pkg/namespaces"

	"seedbed/preseed"
	"seedbed/preseed/offline"
)

// TestOpenInUse does not wait for ever for whoever holds the database.
func TestOpenInUse(t *testing.T) {
	root := t.TempDir()
	s, err := offline.Open(t.Context(), root, offline.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	begin := time.Now()
	_, err = offline.Open(context.Background(), root, offline.Options{LockTimeout: 100 * time.Millisecond})
	var inUse *offline.InUseError
	if !errors.Is(err, offline.ErrInUse) || !errors.As(err, &inUse) || inUse.Hint() == "" {
		t.Errorf("error %v", err)
	}
	if took := time.Since(begin); took > time.Second {
		t.Errorf("waited %s", took)
	}
}

// TestErofsWithoutItsProgram is refused before anything is read: every layer would fail.
func TestErofsWithoutItsProgram(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := offline.Open(t.Context(), t.TempDir(), offline.Options{Snapshotter: "erofs"})
	var option *preseed.OptionError
	if !errors.As(err, &option) || !strings.Contains(err.Error(), "mkfs.erofs") || option.Hint() == "" {
		t.Errorf("error %v", err)
	}
}

// TestOpenMakesDirectories checks their modes under a umask that would take most of them away.
func TestOpenMakesDirectories(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	root := filepath.Join(t.TempDir(), "var", "lib", "containerd")
	s, err := offline.Open(t.Context(), root, offline.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for path, want := range map[string]os.FileMode{"": 0o711, "io.containerd.content.v1.content": 0o755, "io.containerd.metadata.v1.bolt": 0o711} {
		info, err := os.Stat(filepath.Join(root, path))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%q: %v, %v, want %v", path, info, err, want)
		}
	}
}

// TestReadOnly changes nothing: neither a root that is absent nor one that is there.
func TestReadOnly(t *testing.T) {
	for _, exists := range []bool{false, true} {
		root := filepath.Join(t.TempDir(), "root")
		if exists {
			s, err := offline.Open(t.Context(), root, offline.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		s, err := offline.Open(t.Context(), root, offline.Options{ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		if list, err := s.Preseed().Images.List(namespaces.WithNamespace(t.Context(), "k8s.io")); err != nil || len(list) > 0 {
			t.Errorf("images %v, %v", list, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(root); (err == nil) != exists {
			t.Errorf("root after it: %v", err)
		}
	}
}

// TestOpenDamagedDatabase says which file is damaged and what to do; an empty one, as a machine that
// lost power leaves it, is a store without anything in it.
func TestOpenDamagedDatabase(t *testing.T) {
	cases := map[string]struct {
		content string
		damaged bool
	}{
		"noise": {strings.Repeat("noise", 10_000), true}, "short": {"noise", true}, "empty": {"", false},
	}
	for name, c := range cases {
		for _, readOnly := range []bool{true, false} {
			root := t.TempDir()
			path := filepath.Join(root, "io.containerd.metadata.v1.bolt", "meta.db")
			if err := os.MkdirAll(filepath.Dir(path), 0o711); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(c.content), 0o644); err != nil {
				t.Fatal(err)
			}
			s, err := offline.Open(t.Context(), root, offline.Options{ReadOnly: readOnly})
			if err == nil {
				s.Close()
			}
			var damaged *offline.DamagedError
			switch {
			case !c.damaged && err != nil:
				t.Errorf("%s, read-only %v: error %v", name, readOnly, err)
			case c.damaged && (!errors.As(err, &damaged) || damaged.Path != path || damaged.Hint() == ""):
				t.Errorf("%s, read-only %v: error %v", name, readOnly, err)
			}
		}
	}
}
