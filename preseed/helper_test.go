package preseed_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/platforms"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"seedbed/e2e/bundle"
	"seedbed/e2e/containerd"
	"seedbed/preseed"
	"seedbed/preseed/offline"
)

// good is the image that most tests use.
const good = "example.com/good:v1"

// onEachStore runs a test on containerd's store without a daemon and, as root, on a real daemon.
// The namespaces that name returns are the test's own, for the daemon is shared.
func onEachStore(t *testing.T, test func(t *testing.T, s *preseed.Store)) {
	t.Run("offline", func(t *testing.T) { test(t, openOffline(t, t.TempDir())) })
	t.Run("online", func(t *testing.T) { test(t, preseed.NewStore(containerd.Start(t).Client(t))) })
}

func openOffline(t *testing.T, root string) *preseed.Store {
	t.Helper()
	s, err := offline.Open(t.Context(), root, offline.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s.Preseed()
}

// files are the entries of a namespace directory by name.
type files map[string][]byte

// place writes a preseed directory with one namespace.
func place(t *testing.T, namespace string, f files) string {
	t.Helper()
	dir := t.TempDir()
	add(t, dir, namespace, f)
	return dir
}

func add(t *testing.T, dir, namespace string, f files) {
	t.Helper()
	for name, data := range f {
		path := filepath.Join(dir, namespace, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func importDir(t *testing.T, s *preseed.Store, dir string, o preseed.Options) *preseed.Report {
	t.Helper()
	r, err := preseed.Import(t.Context(), s, []preseed.Source{{Path: dir}}, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// outline draws a report as one line for each bundle and one, indented, for each image.
func outline(r *preseed.Report) string {
	var out strings.Builder
	for _, b := range r.Bundles {
		fmt.Fprintf(&out, "%s %s", filepath.Base(b.Path), b.Status)
		if b.Error != nil {
			fmt.Fprintf(&out, " %s", b.Error.Code)
		}
		out.WriteByte('\n')
		for _, i := range b.Images {
			fmt.Fprintf(&out, "  %s %s\n", i.Name, i.Status)
		}
	}
	return out.String()
}

func wantOutline(t *testing.T, r *preseed.Report, want string) {
	t.Helper()
	want = strings.ReplaceAll(strings.TrimLeft(want, "\n"), "\t", "")
	if got := outline(r); got != want {
		t.Errorf("report:\n%swant:\n%s", got, want)
		for _, b := range r.Bundles {
			t.Logf("%s: %s %+v", b.Path, b.Reason, b.Error)
		}
	}
}

// in returns the context of a namespace.
func in(t *testing.T, namespace string) context.Context {
	return namespaces.WithNamespace(t.Context(), namespace)
}

// names returns the images of a namespace.
func names(t *testing.T, s *preseed.Store, namespace string) []string {
	t.Helper()
	list, err := s.Images.List(in(t, namespace))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for _, i := range list {
		all[i.Name] = true
	}
	return slices.Sorted(maps.Keys(all))
}

func wantNames(t *testing.T, s *preseed.Store, namespace string, want ...string) {
	t.Helper()
	if got := names(t, s, namespace); !slices.Equal(got, want) {
		t.Errorf("images in %s: %q, want %q", namespace, got, want)
	}
}

// wantComplete asks containerd's own code whether an image could be run here.
func wantComplete(t *testing.T, s *preseed.Store, namespace, name string) {
	t.Helper()
	ctx := in(t, namespace)
	img, err := s.Images.Get(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	available, _, _, missing, err := images.Check(ctx, s.Content, img.Target, platforms.Default())
	if err != nil || !available || len(missing) > 0 {
		t.Errorf("image %s: available %v, missing %v, error %v", name, available, missing, err)
	}
}

// wantClean looks for what an import must not leave behind.
func wantClean(t *testing.T, s *preseed.Store, namespace string) {
	t.Helper()
	ctx := in(t, namespace)
	if all, err := s.Leases.List(ctx); err != nil || len(all) > 0 {
		t.Errorf("leases left: %v, error %v", all, err)
	}
	if all, err := s.Content.ListStatuses(ctx); err != nil || len(all) > 0 {
		t.Errorf("ingests left: %v, error %v", all, err)
	}
}

// editIndex changes the index.json of an archive.
func editIndex(t *testing.T, a bundle.Tar, edit func(*ocispec.Index)) bundle.Tar {
	t.Helper()
	var index ocispec.Index
	if err := json.Unmarshal(a.Get("index.json"), &index); err != nil {
		t.Fatal(err)
	}
	edit(&index)
	data, err := json.Marshal(index)
	if err != nil {
		t.Fatal(err)
	}
	return a.Replace("index.json", data)
}

// other is a platform that this host is not.
func other() ocispec.Platform {
	if runtime.GOARCH == "arm64" {
		return ocispec.Platform{OS: "linux", Architecture: "ppc64le"}
	}
	return ocispec.Platform{OS: "linux", Architecture: "arm64"}
}

// image is one with a layer of its own, so that nothing is shared with other images.
func image(name, text string) bundle.Image {
	return bundle.Image{Name: name, Layers: []bundle.Layer{{Files: []bundle.File{{Name: "a.txt", Data: []byte(text)}}}}}
}

func oci(images ...bundle.Image) []byte    { return bundle.OCI(images...).Bytes() }
func docker(images ...bundle.Image) []byte { return bundle.Docker(images...).Bytes() }

// layerOf names the first layer's member.
func layerOf(i bundle.Image) string { return bundle.Member(i.Build().Layers[0].Digest) }
