package offline_test

import (
	"bytes"
	_ "crypto/sha512"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"seedbed/preseed"
	"seedbed/preseed/offline"
)

func open(t *testing.T, root string) *offline.Store {
	t.Helper()
	s, err := offline.Open(t.Context(), root, offline.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func descriptor(data string) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: digest.FromString(data), Size: int64(len(data))}
}

// write puts a blob with an image of its own into the store.
func write(t *testing.T, s *preseed.Store, data string) {
	t.Helper()
	ctx := namespaces.WithNamespace(t.Context(), "k8s.io")
	if err := content.WriteBlob(ctx, s.Content, "ref-"+data, strings.NewReader(data), descriptor(data)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Images.Create(ctx, images.Image{Name: data, Target: descriptor(data)}); err != nil {
		t.Fatal(err)
	}
}

// wantState checks which images the store in root has, that their blobs can be read, and which
// files there are.
func wantState(t *testing.T, root string, want ...string) {
	t.Helper()
	s := open(t, root)
	defer s.Close()
	ctx := namespaces.WithNamespace(t.Context(), "k8s.io")
	list, err := s.Preseed().Images.List(ctx)
	if err != nil || len(list) != len(want) {
		t.Errorf("images %v, %v, want %q", list, err, want)
	}
	for _, data := range want {
		if got, err := content.ReadBlob(ctx, s.Content(), descriptor(data)); err != nil || string(got) != data {
			t.Errorf("blob %q: %q, %v", data, got, err)
		}
	}
	if files := under(t, filepath.Join(root, "io.containerd.content.v1.content")); len(files) != len(want) {
		t.Errorf("files %q, want %d", files, len(want))
	}
}

// under lists the files below a directory.
func under(t *testing.T, dir string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestPowerCut copies the root as it is on the disk before Close: it holds the state before the
// run, and what the run left there goes when it is opened next. After Close it is the new one.
func TestPowerCut(t *testing.T) {
	root := t.TempDir()
	s := open(t, root)
	write(t, s.Preseed(), "old")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s = open(t, root)
	write(t, s.Preseed(), "new")
	cut := filepath.Join(t.TempDir(), "cut")
	if err := os.CopyFS(cut, os.DirFS(root)); err != nil {
		t.Fatal(err)
	}
	wantState(t, cut, "old")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wantState(t, root, "old", "new")
}

// TestPowerCutBeforeCommit has the blobs' names and not the database's transaction.
func TestPowerCutBeforeCommit(t *testing.T) {
	root := t.TempDir()
	if err := open(t, root).Close(); err != nil {
		t.Fatal(err)
	}
	database := filepath.Join(root, "io.containerd.metadata.v1.bolt", "meta.db")
	old, err := os.ReadFile(database)
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, root)
	write(t, s.Preseed(), "new")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(database, old, 0o600); err != nil {
		t.Fatal(err)
	}
	s = open(t, root)
	write(t, s.Preseed(), "new")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wantState(t, root, "new")
}

// TestCloseUnchanged leaves the files as they are.
func TestCloseUnchanged(t *testing.T) {
	root := t.TempDir()
	if err := open(t, root).Close(); err != nil {
		t.Fatal(err)
	}
	database := filepath.Join(root, "io.containerd.metadata.v1.bolt", "meta.db")
	before, err := os.ReadFile(database)
	if err != nil {
		t.Fatal(err)
	}
	if err := open(t, root).Close(); err != nil {
		t.Fatal(err)
	}
	if after, err := os.ReadFile(database); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the database changed, error %v", err)
	}
}

// TestWriter holds the store's writers against what containerd expects of any.
func TestWriter(t *testing.T) {
	const data = "some content"
	wrong := digest.FromString("other")
	for _, c := range []struct {
		name     string
		size     int64
		expected digest.Digest
		want     func(error) bool
	}{
		{"right", int64(len(data)), digest.FromString(data), func(err error) bool { return err == nil }},
		{"nothing expected", 0, "", func(err error) bool { return err == nil }},
		{"another algorithm", 0, digest.SHA512.FromString(data), func(err error) bool { return err == nil }},
		{"another size", 3, "", errdefs.IsFailedPrecondition},
		{"another digest", 0, wrong, errdefs.IsFailedPrecondition},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t, t.TempDir())
			defer s.Close()
			ctx := namespaces.WithNamespace(t.Context(), "k8s.io")
			w, err := s.Content().Writer(ctx, content.WithRef("a"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Content().Writer(ctx, content.WithRef("a")); !errdefs.IsUnavailable(err) {
				t.Errorf("a second writer: %v, want unavailable", err)
			}
			if _, err := w.Write([]byte("begun wrongly")); err != nil {
				t.Error(err)
			}
			if err := w.Truncate(0); err != nil {
				t.Error(err)
			}
			if _, err := w.Write([]byte(data)); err != nil {
				t.Error(err)
			}
			err = w.Commit(ctx, c.size, c.expected)
			if !c.want(err) {
				t.Errorf("commit: %v", err)
			}
			if err != nil {
				if err := s.Content().Abort(ctx, "a"); err != nil {
					t.Error(err)
				}
				return
			}
			if got, err := content.ReadBlob(ctx, s.Content(), ocispec.Descriptor{Digest: w.Digest()}); err != nil || string(got) != data {
				t.Errorf("blob %q, %v", got, err)
			}
			if _, err := s.Content().Writer(ctx, content.WithRef("b"), content.WithDescriptor(ocispec.Descriptor{Digest: w.Digest()})); !errdefs.IsAlreadyExists(err) {
				t.Errorf("the same again: %v, want already exists", err)
			}
		})
	}
}

// TestIngestOfThisRun is listed, begun again and removed.
func TestIngestOfThisRun(t *testing.T) {
	root := t.TempDir()
	s := open(t, root)
	ctx := namespaces.WithNamespace(t.Context(), "k8s.io")
	for range 2 {
		w, err := s.Content().Writer(ctx, content.WithRef("a"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte("abc")); err != nil {
			t.Error(err)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		if all, err := s.Content().ListStatuses(ctx); err != nil || len(all) != 1 || all[0].Ref != "a" || all[0].Offset != 3 {
			t.Errorf("ingests %v, %v", all, err)
		}
	}
	if err := s.Content().Abort(ctx, "a"); err != nil {
		t.Error(err)
	}
	if all, err := s.Content().ListStatuses(ctx); err != nil || len(all) > 0 {
		t.Errorf("ingests %v, %v", all, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	wantState(t, root)
}
