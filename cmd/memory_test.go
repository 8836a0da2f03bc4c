package cmd_test

import (
	"archive/tar"
	"crypto/aes"
	"crypto/cipher"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"seedbed/e2e/containerd"
)

const (
	hugeLayers = 7         // of the huge bundle, two of them half as large with gzip
	hugeFile   = 100 << 20 // bytes of the one file in each
	mib        = 1 << 20
)

// TestMemory measures the peak of what an import, a check and a verification of a bundle of 600 MiB take:
// at most 64 MiB, and 96 MiB where the bundle is compressed as a whole.
func TestMemory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("unpacking and containerd need root")
	}
	d, other := containerd.Start(t), containerd.Start(t)
	dir := t.TempDir()
	plain, packed := filepath.Join(dir, "huge.tar"), filepath.Join(dir, "huge.tar.zst")
	runProgram(t, "huge", plain, packed)
	root := func(name string) string { return filepath.Join(dir, name) }
	for _, c := range []struct {
		name   string
		limit  int // MiB
		bundle string
		args   []string
	}{
		{"check", 64, plain, []string{"check"}},
		{"check zstd", 96, packed, []string{"check"}},
		{"offline", 64, plain, []string{"import", "--offline", "--containerd-root", root("a")}},
		{"offline verify", 64, plain, []string{"verify", "--offline", "--containerd-root", root("a")}},
		{"offline zstd", 96, packed, []string{"import", "--offline", "--containerd-root", root("b")}},
		{"offline unpack", 64, plain, []string{"import", "--offline", "--containerd-root", root("a"), "--unpack"}},
		{"online zstd", 96, packed, []string{"import", "-a", other.Address}},
		{"online", 64, plain, []string{"import", "-a", d.Address}},
		{"online verify", 64, plain, []string{"verify", "-a", d.Address}},
		{"online unpack", 64, plain, []string{"import", "-a", d.Address, "--unpack"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := append([]string{"seedbed", "preseed"}, c.args...)
			peak := strings.TrimSpace(runProgram(t, "peak", append(args, c.bundle, "-n", "k8s.io")...))
			kib, err := strconv.Atoi(peak)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("peak %d MiB", kib>>10)
			if kib>>10 > c.limit {
				t.Errorf("peak %d MiB, want at most %d", kib>>10, c.limit)
			}
		})
	}
}

func runProgram(t *testing.T, name string, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, args...)
	var stderr strings.Builder
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, &stderr)
	}
	return string(out)
}

// printPeak is `peak PROGRAM ARG…`: it runs a program and prints the peak of its memory in KiB. A
// process starts with the peak of the one that started it (getrusage(2), ru_maxrss is kept by
// execve), so that must be a small one and not the test.
func printPeak(args []string) int {
	c := exec.Command(args[0], args[1:]...)
	c.Stdout, c.Stderr = os.Stderr, os.Stderr
	if err := c.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "peak:", err)
		return 1
	}
	fmt.Println(c.ProcessState.SysUsage().(*syscall.Rusage).Maxrss)
	return 0
}

// writeHuge is `huge FILE PACKED`: it writes a bundle of 600 MiB, and the same one compressed.
func writeHuge(args []string) int {
	err := inFile(args[0], writeHugeTar)
	if err == nil {
		err = inFile(args[1], func(w io.Writer) error { return compressFile(w, args[0]) })
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "huge:", err)
		return 1
	}
	return 0
}

func inFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return write(f)
}

func compressFile(w io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		return err
	}
	if _, err := io.Copy(z, f); err != nil {
		return err
	}
	return z.Close()
}

// writeHugeTar writes an OCI archive layer by layer, without holding one in memory.
func writeHugeTar(w io.Writer) error {
	config := ocispec.Image{Platform: ocispec.Platform{OS: "linux", Architecture: runtime.GOARCH}, RootFS: ocispec.RootFS{Type: "layers"}}
	manifest := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest}
	archive := tar.NewWriter(w)
	for n := range hugeLayers {
		layer, diffID, err := writeHugeLayer(io.Discard, n)
		if err != nil {
			return err
		}
		if err := writeHeader(archive, "blobs/sha256/"+layer.Digest.Encoded(), layer.Size); err != nil {
			return err
		}
		if _, _, err := writeHugeLayer(archive, n); err != nil {
			return err
		}
		manifest.Layers = append(manifest.Layers, layer)
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, diffID)
	}
	var err error
	if manifest.Config, err = writeDocument(archive, "", config, ocispec.MediaTypeImageConfig); err != nil {
		return err
	}
	target, err := writeDocument(archive, "", manifest, ocispec.MediaTypeImageManifest)
	if err != nil {
		return err
	}
	target.Annotations = map[string]string{"io.containerd.image.name": "example.com/huge:1"}
	index := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{target}}
	if _, err := writeDocument(archive, ocispec.ImageIndexFile, index, ""); err != nil {
		return err
	}
	if _, err := writeDocument(archive, ocispec.ImageLayoutFile, ocispec.ImageLayout{Version: ocispec.ImageLayoutVersion}, ""); err != nil {
		return err
	}
	return archive.Close()
}

// writeHugeLayer writes a layer, the first two with gzip, and returns what it is and its diff ID.
func writeHugeLayer(w io.Writer, n int) (ocispec.Descriptor, digest.Digest, error) {
	desc := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayer}
	packed, plain, size := digest.Canonical.Digester(), digest.Canonical.Digester(), &counter{}
	out := io.WriteCloser(nopCloser{io.MultiWriter(w, packed.Hash(), size)})
	if n < 2 {
		desc.MediaType = ocispec.MediaTypeImageLayerGzip
		z, err := gzip.NewWriterLevel(out, gzip.BestSpeed)
		if err != nil {
			return desc, "", err
		}
		out = z
	}
	err := writeHugeFile(io.MultiWriter(out, plain.Hash()), n)
	if err == nil {
		err = out.Close()
	}
	desc.Digest, desc.Size = packed.Digest(), size.n
	return desc, plain.Digest(), err
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// writeHugeFile writes a tar with one file, half of which does not compress.
func writeHugeFile(w io.Writer, n int) error {
	layer := tar.NewWriter(w)
	if err := writeHeader(layer, fmt.Sprintf("file-%d", n), hugeFile); err != nil {
		return err
	}
	block, err := aes.NewCipher(make([]byte, 16))
	if err != nil {
		return err
	}
	stream := cipher.NewCTR(block, append(make([]byte, 15), byte(n)))
	buffer := make([]byte, mib)
	for range hugeFile / mib {
		stream.XORKeyStream(buffer[:mib/2], buffer[:mib/2])
		if _, err := layer.Write(buffer); err != nil {
			return err
		}
	}
	return layer.Close()
}

func writeHeader(w *tar.Writer, name string, size int64) error {
	return w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644})
}

// writeDocument writes JSON as a member, "" meaning that it is a blob.
func writeDocument(w *tar.Writer, name string, document any, mediaType string) (ocispec.Descriptor, error) {
	data, err := json.Marshal(document)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	desc := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
	if name == "" {
		name = "blobs/sha256/" + desc.Digest.Encoded()
	}
	if err := writeHeader(w, name, desc.Size); err != nil {
		return desc, err
	}
	_, err = w.Write(data)
	return desc, err
}

type counter struct{ n int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return len(p), nil
}
