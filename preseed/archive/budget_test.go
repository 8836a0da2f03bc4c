package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"seedbed/e2e/bundle"
)

// withJunk puts n junk members before the first one of t.
func withJunk(n int, t bundle.Tar) bundle.Tar {
	var junk bundle.Tar
	for i := range n {
		junk = junk.Add(fmt.Sprintf("blobs/sha256/%064x", i), nil)
	}
	return append(junk, t...)
}

// When the table is full, what matters is still found: by walking again.
func TestTableBudget(t *testing.T) {
	good := bundle.Good(goodName)
	other := bundle.Good("")
	other.Platform.OS, other.Platform.Architecture = "linux", "riscv64"
	nested := bundle.Image{Name: "example.com/nested:v1", Variants: []bundle.Image{{Variants: []bundle.Image{good, other}}}}
	read := func(t *testing.T, form bundle.Tar, budget int) *Archive {
		t.Helper()
		data := withJunk(50, form).Bytes()
		table, err := index(context.Background(), bytes.NewReader(data), int64(len(data)), budget)
		if err != nil {
			t.Fatal(err)
		}
		if full := table.left > 0; full != (budget < 1<<20) {
			t.Fatalf("table is full: %v, with a budget of %d", full, budget)
		}
		a := &Archive{}
		if _, oci := table.members["index.json"]; oci {
			err = a.readOCI(context.Background(), table)
		} else {
			err = a.readDocker(context.Background(), table)
		}
		if err != nil {
			t.Fatal(err)
		}
		if a.IgnoredCount < 1 && budget < 1<<20 {
			t.Error("nothing is ignored")
		}
		return a
	}
	for _, budget := range []int{0, 1000, 1 << 20} {
		a := read(t, bundle.OCI(good, nested), budget)
		wantNames(t, a, good.Name, nested.Name)
		wantBlob(t, a, nested.Build().Target.Digest)
		wantWhole(t, a, good.Build())
		wantWhole(t, a, other.Build())

		linked := twice(t, func(t bundle.Tar, second, first string) bundle.Tar {
			return t.Add("third", nil).Hardlink("third", first).Symlink(second, "../third")
		})
		a = read(t, linked, budget)
		wantNames(t, a, good.Name)
		for _, layer := range wantManifest(t, a).Layers {
			wantBlob(t, a, layer.Digest)
		}
	}
}

// junkTar is an archive that begins with n empty members, whose headers are
// made when they are read.
type junkTar struct {
	n      int64
	header []byte // of one such member
	rest   []byte // the archive after them
}

func newJunkTar(t *testing.T, n int64, rest []byte) junkTar {
	t.Helper()
	var header bytes.Buffer
	w := tar.NewWriter(&header)
	name := "blobs/sha256/" + strings.Repeat("0", 64)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Format: tar.FormatUSTAR}); err != nil {
		t.Fatal(err)
	}
	return junkTar{n: n, header: header.Bytes(), rest: rest}
}

func (j junkTar) size() int64 { return j.n*tarBlock + int64(len(j.rest)) }

// ReadAt reads within one block at most, as the walk over headers does.
func (j junkTar) ReadAt(p []byte, off int64) (int, error) {
	n := off / tarBlock
	if n >= j.n {
		return bytes.NewReader(j.rest).ReadAt(p, off-j.n*tarBlock)
	}
	return copy(p, renamed(j.header, n)[off%tarBlock:]), nil
}

// renamed gives a header of a USTAR member, named after a digest of zeros, the
// name that ends in n and the checksum that belongs to it.
func renamed(header []byte, n int64) []byte {
	h := bytes.Clone(header)
	sum, err := strconv.ParseInt(string(h[148:154]), 8, 64)
	if err != nil {
		panic(err)
	}
	for at := 76; n > 0; at, n = at-1, n/10 {
		h[at] += byte(n % 10)
		sum += n % 10
	}
	for at := 153; at >= 148; at, sum = at-1, sum/8 {
		h[at] = '0' + byte(sum%8)
	}
	return h
}

// Memory is bounded however many members there are, although each may be a
// blob: a million take as much as these.
func TestManyMembers(t *testing.T) {
	for name, image := range map[string]bundle.Tar{"oci": bundle.OCI(bundle.Good(goodName)), "docker": bundle.Docker(bundle.Good(goodName))} {
		junk := newJunkTar(t, 200_000, image.Bytes())
		before := heap()
		a := &Archive{Size: junk.size()}
		if err := (Options{}).readTar(context.Background(), a, junk); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if grown := heap() - before; grown > 24<<20 {
			t.Errorf("%s: an open archive of 200,000 members holds %d MiB", name, grown>>20)
		}
		wantNames(t, a, goodName)
		wantManifest(t, a)
		if a.IgnoredCount < 100_000 {
			t.Errorf("%s: %d members ignored", name, a.IgnoredCount)
		}
	}
}

// heap is how many bytes are in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
