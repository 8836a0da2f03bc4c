package archive

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"seedbed/e2e/bundle"
)

// P05, P14 and every form in every compression: what is read is the same.
func TestOpenForms(t *testing.T) {
	image := bundle.Good(goodName)
	forms := []struct {
		name   string
		tar    bundle.Tar
		format Format
	}{
		{"oci", bundle.OCI(image), OCIArchive},
		{"P14 oci with ./", bundle.OCI(image).Prefix("./"), OCIArchive},
		{"docker 25 hybrid", bundle.Hybrid(image), OCIArchive},
		{"docker", bundle.Docker(image), DockerArchive},
		{"P14 docker with ./", bundle.Docker(image).Prefix("./"), DockerArchive},
	}
	compressions := map[Compression]bundle.Compression{None: bundle.None, Gzip: bundle.Gzip, Zstd: bundle.Zstd}
	for _, form := range forms {
		for c, inner := range compressions {
			t.Run(form.name+" "+string(c), func(t *testing.T) {
				data := bundle.Compress(form.tar.Bytes(), inner)
				check := func(a *Archive) {
					t.Helper()
					if a.Format != form.format || a.Compression != c || a.Size != int64(len(data)) {
						t.Errorf("got %s, %s, %d bytes; want %s, %s, %d", a.Format, a.Compression, a.Size, form.format, c, len(data))
					}
					wantNames(t, a, goodName)
					wantBlob(t, a, a.Images[0].Target.Digest)
					if form.format == OCIArchive {
						wantWhole(t, a, image.Build())
					}
				}
				check(openBytes(t, data))
				a, err := OpenStream(context.Background(), bytes.NewReader(data), t.TempDir())
				if err != nil {
					t.Fatal(err)
				}
				defer a.Close()
				check(a)
				if err := a.Unchanged(); err != nil {
					t.Errorf("Unchanged of a stream: %v", err)
				}
			})
		}
	}
}

// Blobs of an uncompressed archive are not read when it is opened.
func TestOpenReadsNoBlob(t *testing.T) {
	image := bundle.Image{Name: goodName, Layers: []bundle.Layer{{
		Compression: bundle.None, Files: []bundle.File{{Name: "large", Data: make([]byte, 8<<20)}},
	}}}
	for name, tar := range map[string]bundle.Tar{"oci": bundle.OCI(image), "docker": bundle.Docker(image), "hybrid": bundle.Hybrid(image)} {
		a := openBytes(t, tar.Bytes())
		if n := a.BytesRead(); n > 32<<10 {
			t.Errorf("%s: %d bytes read to open it", name, n)
		}
		before := a.BytesRead()
		layer := wantBlob(t, a, image.Build().DiffIDs[0])
		if got := a.BytesRead() - before; got < int64(len(layer)) {
			t.Errorf("%s: %d bytes counted for a layer of %d", name, got, len(layer))
		}
	}
}

func TestOpenLayout(t *testing.T) {
	image, dir := bundle.Good(goodName), t.TempDir()
	if err := bundle.WriteOCILayout(dir, image); err != nil {
		t.Fatal(err)
	}
	a := mustOpen(t, dir)
	if a.Format != OCILayout || a.Size == 0 {
		t.Errorf("got %s of %d bytes", a.Format, a.Size)
	}
	wantNames(t, a, goodName)
	wantWhole(t, a, image.Build())
	layer := image.Build().Layers[0].Digest
	blob, _ := a.Blob(layer)
	if want := filepath.Join(dir, bundle.Member(layer)); blob.Path != want {
		t.Errorf("path = %q, want %q", blob.Path, want)
	}
	if err := a.Unchanged(); err != nil {
		t.Errorf("Unchanged: %v", err)
	}
	// A FIFO in a blob's place does not block.
	if err := os.Remove(blob.Path); err != nil {
		t.Fatal(err)
	}
	wantError(t, a.Missing(layer), CodeMissingBlob, "not in the layout")
	if err := syscall.Mkfifo(blob.Path, 0o600); err != nil {
		t.Fatal(err)
	}
	wantError(t, a.Missing(layer), CodeMissingBlob, "a FIFO")
	wantError(t, a.Unchanged(), CodeChangedWhileReading)
}

// A FIFO, a socket, a device or a directory named x.tar never blocks.
func TestOpenSpecialFiles(t *testing.T) {
	dir := t.TempDir()
	fifo, socket := filepath.Join(dir, "fifo.tar"), filepath.Join(dir, "socket.tar")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: socket}); err != nil {
		t.Fatal(err)
	}
	for path, words := range map[string]string{fifo: "a FIFO", socket: "a socket", "/dev/zero": "a device", dir: "none of them among 2 members"} {
		start := time.Now()
		_, err := Open(context.Background(), path)
		wantError(t, err, CodeNotAnImage, words)
		if d := time.Since(start); d > 5*time.Second {
			t.Errorf("%s: took %s", path, d)
		}
	}
}

// changes are what happens to a bundle's file, by the word that has to be said of it.
func changes(good []byte) map[string]func(path string) error {
	return map[string]func(path string) error{
		"modified": func(path string) error { return os.Chtimes(path, time.Now(), time.Now().Add(time.Hour)) },
		"bytes now": func(path string) error {
			return os.WriteFile(path, append(bytes.Clone(good), 0), 0o600)
		},
		"replaced": func(path string) error {
			if err := os.WriteFile(path+".new", good, 0o600); err != nil {
				return err
			}
			return os.Rename(path+".new", path)
		},
		"removed": os.Remove,
	}
}

func TestUnchanged(t *testing.T) {
	good := bundle.OCI(bundle.Good(goodName)).Bytes()
	for name, change := range changes(good) {
		path := write(t, good)
		a := mustOpen(t, path)
		if err := a.Unchanged(); err != nil {
			t.Errorf("before: %v", err)
		}
		if err := change(path); err != nil {
			t.Fatal(err)
		}
		wantError(t, a.Unchanged(), CodeChangedWhileReading, name)
	}
}

// P01, P02, P03: names are given raw, and one that is only a tag is marked.
func TestNames(t *testing.T) {
	both := bundle.Good("example.com/full:v1")
	both.RefName = "v1"
	for _, test := range []struct {
		why     string
		tar     bundle.Tar
		name    string
		tagOnly bool
	}{
		{"P01 unnamed", bundle.OCI(bundle.Good("")), "", false},
		{"P02 RepoTags null", bundle.Docker(bundle.Good("")), "", false},
		{"P02 RepoTags []", repoTags("[]"), "", false},
		{"P03 a tag", bundle.OCI(bundle.Image{RefName: "latest"}), "latest", true},
		{"ref.name is a full name", bundle.OCI(bundle.Image{RefName: "example.com/a:v1"}), "example.com/a:v1", false},
		{"ref.name without a registry", bundle.OCI(bundle.Image{RefName: "app:1"}), "app:1", false},
		{"both annotations", bundle.OCI(both), "example.com/full:v1", false},
		{"P04 short docker name stays raw", bundle.Docker(bundle.Good("app:1")), "app:1", false},
		{"P29 bad name stays raw", bundle.OCI(bundle.Good("UPPER/Case:1")), "UPPER/Case:1", false},
	} {
		a := openBytes(t, test.tar.Bytes())
		if got := a.Images[0]; len(a.Images) != 1 || got.Name != test.name || got.TagOnly != test.tagOnly || got.Err != nil {
			t.Errorf("%s: got %+v, want name %q, tag only %v", test.why, a.Images, test.name, test.tagOnly)
		}
	}
}

func repoTags(tags string) bundle.Tar {
	tar := bundle.Docker(bundle.Good(""))
	return tar.Replace("manifest.json", bytes.Replace(tar.Get("manifest.json"), []byte("null"), []byte(tags), 1))
}

func TestManyImages(t *testing.T) {
	a := bundle.Good("example.com/a:1")
	b := bundle.Good("example.com/b:2")
	b.Layers = append(b.Layers, bundle.Layer{Compression: bundle.Zstd, Files: []bundle.File{{Name: "b", Data: []byte("b")}}})
	unnamed := bundle.Good("")
	unnamed.Platform = ocispec.Platform{OS: "linux", Architecture: "riscv64"}
	multi := bundle.Image{Name: "example.com/multi:3", Variants: []bundle.Image{a, b}}

	oci := openBytes(t, bundle.OCI(a, b, unnamed, multi).Bytes())
	wantNames(t, oci, a.Name, b.Name, "", multi.Name)
	for _, image := range []bundle.Image{a, b, unnamed} {
		wantWhole(t, oci, image.Build())
	}
	wantBlob(t, oci, multi.Build().Target.Digest)

	docker := openBytes(t, bundle.Docker(a, b, unnamed).Bytes())
	wantNames(t, docker, a.Name, b.Name, "")
	if p := docker.Images[2].Target.Platform; p == nil || p.Architecture != "riscv64" {
		t.Errorf("platform = %v, want that of the config", p)
	}
}

// Blobs are asked for and read from many goroutines at once.
func TestConcurrentReads(t *testing.T) {
	image, dir := bundle.Good(goodName), t.TempDir()
	if err := bundle.WriteOCILayout(dir, image); err != nil {
		t.Fatal(err)
	}
	for _, a := range []*Archive{mustOpen(t, dir), openBytes(t, bundle.OCI(image).Bytes())} {
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				for _, d := range []digest.Digest{image.Build().Target.Digest, image.Build().Layers[0].Digest} {
					b, ok := a.Blob(d)
					if !ok {
						t.Errorf("no blob %s", d)
						continue
					}
					if got, err := digest.FromReader(b.Reader()); got != d || err != nil {
						t.Errorf("read %s: got %s, %v", d, got, err)
					}
				}
				if err := a.Unchanged(); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
	}
}
