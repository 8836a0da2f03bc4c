package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"seedbed/e2e/bundle"
)

// P06, P07: what is no archive is told apart by what it is, whatever its name.
func TestNotAnArchive(t *testing.T) {
	nul := make([]byte, 1024)
	binary := bytes.Repeat([]byte{0xde, 0xad, 0xbe, 0xef}, 200)
	for _, test := range []struct {
		why   string
		data  []byte
		code  Code
		words string
	}{
		{"P07 zero bytes", nil, CodeEmpty, "the file is empty (0 bytes)"},
		{"P07 3 bytes", []byte("abc"), CodeNotAnImage, "only 3 bytes, too short"},
		{"P07 1 KiB of NULs", nul, CodeNotAnImage, "nothing but NUL bytes"},
		{"P07 plain text", []byte("Not Found\nmore\n"), CodeNotAnImage, `plain text that begins "Not Found"`},
		{"P06 HTML page", []byte("\n<!DOCTYPE html>\n<html>…</html>"), CodeNotAnImage, "an HTML page"},
		{"P06 long HTML page", []byte("<html>" + strings.Repeat("<p>é</p>", 300)), CodeNotAnImage, "an HTML page"},
		{"XML error of an object store", []byte(`<?xml version="1.0"?><Error>`), CodeNotAnImage, "an XML document"},
		{"JSON", []byte(`{"errors":[]}`), CodeNotAnImage, "JSON text"},
		{"Git LFS pointer", []byte("version https://git-lfs.github.com/spec/v1\n"), CodeNotAnImage, "a Git LFS pointer"},
		{"a program", append([]byte("\x7fELF"), binary...), CodeNotAnImage, "an ELF program"},
		{"unknown", binary, CodeNotAnImage, "unknown data that begins with bytes de ad be ef"},
		{"unknown and short", binary[:100], CodeNotAnImage, "only 100 bytes, too short for a tar"},
		{"escape sequence in text", []byte("\x1b[31mred\nmore"), CodeNotAnImage, `"\x1b[31mred"`},
		{"P05 xz", []byte("\xfd7zXZ\x00\x00\x04"), CodeUnsupportedCompression, "xz compression, expected none, gzip or zstd"},
		{"P05 bzip2", []byte("BZh91AY&SY"), CodeUnsupportedCompression, "bzip2 compression"},
		{"P05 lz4", []byte("\x04\x22\x4d\x18\x60\x40"), CodeUnsupportedCompression, "lz4 compression"},
		{"zip", []byte("PK\x03\x04rest"), CodeUnsupportedCompression, "zip compression"},
		{"gzip of text", bundle.Compress([]byte("Not Found\n"), bundle.Gzip), CodeNotAnImage, `plain text that begins "Not Found", after gzip decompression`},
		{"gzip of nothing", bundle.Compress(nil, bundle.Gzip), CodeEmpty, "after gzip decompression"},
		{"zstd of gzip", bundle.Compress(bundle.Compress(nul, bundle.Gzip), bundle.Zstd), CodeUnsupportedCompression, "gzip within zstd"},
		{"gzip magic and garbage", append([]byte("\x1f\x8b\x08\x00"), binary...), CodeDigestMismatch, "gzip stream is damaged"},
		{"zstd magic and garbage", append([]byte("\x28\xb5\x2f\xfd"), binary...), CodeDigestMismatch, "zstd stream is damaged"},
	} {
		t.Run(test.why, func(t *testing.T) { wantError(t, refused(t, test.data), test.code, test.words) })
	}
}

// P15, P16, P29: tars that hold no image.
func TestNotAnImage(t *testing.T) {
	oci, docker := bundle.OCI(bundle.Good(goodName)), bundle.Docker(bundle.Good(goodName))
	rootFS := bundle.Tar{}.Add("etc/passwd", nil).Add("bin/sh", nil).Add("usr/lib/x", nil)
	for _, test := range []struct {
		why   string
		tar   bundle.Tar
		words string
	}{
		{"P15 OCI under one directory", oci.Prefix("myimage/"), `everything is under one directory, "myimage"`},
		{"P15 docker under one directory", docker.Prefix("./my image/"), `everything is under one directory, "my image"`},
		{"P16 docker export", rootFS, "looks like a root filesystem, not an image"},
		{"P29 empty index.json", oci.Replace("index.json", []byte(`{"schemaVersion":2,"manifests":[]}`)), `"index.json": it lists no image`},
		{"P29 index.json of no bytes", oci.Replace("index.json", nil), `"index.json": it is empty`},
		{"P29 missing index.json", oci.Drop("index.json"), `"index.json": not there`},
		{"P29 missing oci-layout", oci.Drop("oci-layout"), `"oci-layout": not there`},
		{"P29 layout version 2.0.0", oci.Replace("oci-layout", []byte(`{"imageLayoutVersion":"2.0.0"}`)), `layout version "2.0.0", expected 1.0.0`},
		{"P29 oci-layout without a version", oci.Replace("oci-layout", []byte(`{}`)), `layout version ""`},
		{"P29 index.json is HTML", oci.Replace("index.json", []byte("<html><body>")), `"index.json": an HTML page`},
		{"P29 index.json is cut", oci.Replace("index.json", oci.Get("index.json")[:50]), `"index.json": it is not the JSON that it should be`},
		{"P29 index.json is binary", oci.Replace("index.json", []byte{1, 2, 3}), `"index.json": it is not JSON`},
		{"P29 manifest.json is an object", docker.Replace("manifest.json", []byte(`{"name":"web app"}`)), `"manifest.json": it is not the JSON`},
		{"P29 manifest.json lists nothing", docker.Replace("manifest.json", []byte(`[]`)), `"manifest.json": it lists no image`},
		{"P29 neither of them", bundle.Tar{}.Add("a", nil).Add("b", nil), `none of them among 2 members, the first is "a"`},
		{"before Docker 1.10", docker.Drop("manifest.json").Add("repositories", nil), "before Docker 1.10"},
		{"a Helm chart", bundle.Tar{}.Add("chart/Chart.yaml", nil).Add("chart/values.yaml", nil), "a Helm chart"},
		{"names that leave the archive do not count", docker.Rename("manifest.json", "../manifest.json"), "none of them"},
		{"absolute names do not count", docker.Rename("manifest.json", "/manifest.json"), "none of them"},
	} {
		t.Run(test.why, func(t *testing.T) { wantError(t, refused(t, test.tar.Bytes()), CodeNotAnImage, test.words) })
	}
}

// The same verdicts for directories.
func TestNotALayout(t *testing.T) {
	oci, docker := bundle.OCI(bundle.Good(goodName)), bundle.Docker(bundle.Good(goodName))
	for _, test := range []struct {
		why   string
		tar   bundle.Tar
		words string
	}{
		{"empty", nil, "no member at all"},
		{"missing index.json", oci.Drop("index.json"), `"index.json": not there`},
		{"an unpacked docker archive", docker, "a docker archive that was unpacked"},
		{"layout version", oci.Replace("oci-layout", []byte(`{"imageLayoutVersion":"2.0.0"}`)), "2.0.0"},
	} {
		dir := t.TempDir()
		if err := test.tar.Unpack(dir); err != nil {
			t.Fatal(err)
		}
		_, err := Open(context.Background(), dir)
		wantError(t, err, CodeNotAnImage, test.words)
	}
}

// P08: a truncated archive says so, wherever it was cut.
func TestTruncated(t *testing.T) {
	good := bundle.OCI(bundle.Good(goodName)).Bytes()
	wantError(t, refused(t, good[:2500]), CodeTruncated, `"index.json": the archive ends at byte 2500, expected another header`)
	e := refused(t, good[:2600])
	wantError(t, e, CodeTruncated, "the archive ends at byte 2600", "of this member from byte 2560 on")
	if !strings.HasPrefix(e.Member, "blobs/sha256/") || e.Hint() == "" {
		t.Errorf("member %q, hint %q: want the cut member and a hint", e.Member, e.Hint())
	}
	wantError(t, refused(t, good[:520]), CodeTruncated, `"oci-layout": the archive ends at byte 520`)
	wantError(t, refused(t, good[:700]), CodeTruncated, "ends at byte 700 without its end mark")
	for _, c := range []bundle.Compression{bundle.Gzip, bundle.Zstd} {
		data := bundle.Compress(good, c)
		wantError(t, refused(t, data[:len(data)/2]), CodeTruncated, "stream ends in the middle")
		wantError(t, refused(t, data[:len(data)-2]), CodeTruncated, "stream ends in the middle")
		wantError(t, refused(t, data[:6]), CodeTruncated, "stream ends in the middle")
	}
}

// P08: a cut between two members is seen by the missing end mark.
func TestTruncatedBetweenMembers(t *testing.T) {
	image := bundle.Good(goodName)
	tar := bundle.OCI(image)
	end := len(tar[:len(tar)-1].Bytes()) - 1024
	a := openBytes(t, tar.Bytes()[:end])
	wantError(t, a.Missing(image.Build().Target.Digest), CodeTruncated, fmt.Sprintf("ends at byte %d without its end mark", end))

	docker := bundle.Docker(image)
	end = len(docker[:len(docker)-1].Bytes()) - 1024
	wantError(t, refused(t, docker.Bytes()[:end]), CodeTruncated, "without its end mark")
}

// Every cut and every flipped header byte gives an error or an archive, never a
// panic and never an error without a code.
func TestDamagedAnywhere(t *testing.T) {
	good := bundle.Hybrid(bundle.Good(goodName)).Bytes()
	path := filepath.Join(t.TempDir(), "x.tar")
	for n := 0; n < len(good); n += 61 {
		flipped := bytes.Clone(good)
		flipped[n] ^= 0x55
		for _, data := range [][]byte{good[:n], flipped} {
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			a, err := Open(context.Background(), path)
			if err != nil {
				asError(t, err)
				continue
			}
			a.Close()
		}
	}
}

// The decoder's memory is bounded: a window that is larger is refused.
func TestZstdWindow(t *testing.T) {
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b, zstd.WithWindowSize(128<<20), zstd.WithSingleSegment(false))
	if err != nil {
		t.Fatal(err)
	}
	if err := bundle.OCI(bundle.Good(goodName)).Write(w); err != nil {
		t.Fatal(err)
	}
	w.Flush()
	w.Close()
	wantError(t, refused(t, b.Bytes()), CodeUnsupportedCompression, "a window of at most 64 MiB")
}

func TestMissingBlob(t *testing.T) {
	image := bundle.Good(goodName)
	layer := image.Build().Layers[0].Digest
	a := openBytes(t, bundle.OCI(image).Drop(bundle.Member(layer)).Bytes())
	if _, ok := a.Blob(layer); ok {
		t.Fatal("found a blob that is not there")
	}
	wantError(t, a.Missing(layer), CodeMissingBlob, bundle.Member(layer), "not in the archive", layer.String())
	wantError(t, a.Missing("sha256:../../etc/passwd"), CodeMissingBlob, "no digest")
	// The verdict about bytes is the caller's: a damaged blob is there.
	a = openBytes(t, bundle.OCI(image).FlipByte(bundle.Member(layer)).Bytes())
	if _, ok := a.Blob(layer); !ok {
		t.Fatal(a.Missing(layer))
	}
}

func TestCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	good := bundle.OCI(bundle.Good(goodName)).Bytes()
	for _, data := range [][]byte{good, bundle.Compress(good, bundle.Gzip), bundle.Compress(good, bundle.Zstd)} {
		if _, err := Open(ctx, write(t, data)); err == nil || ctx.Err() == nil || !strings.Contains(err.Error(), "canceled") {
			t.Errorf("error = %v, want context canceled", err)
		}
	}
}

// TestNoPlaceToDecompress: without a directory for temporary files the hint says what to set, when
// there is something that does not stay in memory.
func TestNoPlaceToDecompress(t *testing.T) {
	_, err := OpenStream(t.Context(), bytes.NewReader(bundle.Compress(bundle.OCI(bigImage()).Bytes(), bundle.Gzip)), "/nonexistent")
	var e *Error
	if !errors.As(err, &e) || !strings.Contains(e.Hint(), "TMPDIR") || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}
