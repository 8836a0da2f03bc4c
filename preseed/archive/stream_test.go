package archive

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"seedbed/e2e/bundle"
)

// keeping records the pieces that it is given.
type keeping struct{ pieces []Piece }

func (k *keeping) keep(_ context.Context, p Piece, r io.Reader) (func() (digest.Digest, error), error) {
	k.pieces = append(k.pieces, p)
	d, err := digest.FromReader(r)
	return func() (digest.Digest, error) { return d, err }, err
}

// noise is data that no compression makes small.
func noise(n int) []byte {
	data := make([]byte, n)
	for i, seed := 0, uint32(7); i < n; i++ {
		seed = seed*1664525 + 1013904223
		data[i] = byte(seed >> 24)
	}
	return data
}

func bigImage() bundle.Image {
	i := bundle.Good(goodName)
	i.Layers = append(i.Layers, bundle.Layer{Files: []bundle.File{{Name: "big", Data: noise(1 << 20)}}})
	return i
}

// Large blobs are handed out, documents and small members can be read, junk is passed over.
func TestKeep(t *testing.T) {
	i := bigImage()
	i.Command = []string{string(bytes.Repeat([]byte("x"), 100<<10))} // a config that is no small member
	built := i.Build()
	form := append(bundle.OCI(i), bundle.Tar{}.Add("junk", noise(1<<20)).Add("small junk", []byte("x"))...)
	for _, how := range []bundle.Compression{bundle.None, bundle.Gzip, bundle.Zstd} {
		var k keeping
		a, err := Options{SpoolDir: t.TempDir(), Keep: k.keep}.OpenStream(t.Context(), bytes.NewReader(bundle.Compress(form.Bytes(), how)))
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		big := built.Layers[1]
		if len(k.pieces) != 1 || k.pieces[0] != (Piece{Member: bundle.Member(big.Digest), Size: big.Size, Digest: big.Digest}) {
			t.Errorf("%s: pieces %+v", how, k.pieces)
		}
		if b, ok := a.Blob(big.Digest); !ok || !b.Kept || b.Found != big.Digest || b.Size != big.Size {
			t.Errorf("%s: layer %+v", how, b)
		}
		wantBlob(t, a, built.Config.Digest)
		wantBlob(t, a, built.Layers[0].Digest)
		if slices.Sort(a.Ignored); !slices.Equal(a.Ignored, []string{"junk", "small junk"}) || a.IgnoredCount != 2 {
			t.Errorf("%s: ignored %q", how, a.Ignored)
		}
	}
}

// A damaged blob is not an error of the archive; what its bytes are is said.
func TestKeepDamaged(t *testing.T) {
	i := bigImage()
	big := i.Build().Layers[1].Digest
	damaged := bundle.OCI(i).FlipByte(bundle.Member(big))
	var k keeping
	a, err := Options{Keep: k.keep}.OpenStream(t.Context(), bytes.NewReader(damaged.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if b, ok := a.Blob(big); !ok || b.Found != digest.FromBytes(damaged.Get(bundle.Member(big))) {
		t.Errorf("blob %+v", b)
	}
}

// What goes wrong with keeping ends the reading, and is not taken for the archive's fault.
func TestKeepFails(t *testing.T) {
	full := errors.New("the store is full")
	for _, keep := range []Keep{
		func(context.Context, Piece, io.Reader) (func() (digest.Digest, error), error) { return nil, full },
		func(_ context.Context, _ Piece, r io.Reader) (func() (digest.Digest, error), error) {
			return func() (digest.Digest, error) { return "", full }, nil
		},
	} {
		_, err := Options{Keep: keep}.OpenStream(t.Context(), bytes.NewReader(bundle.Compress(bundle.OCI(bigImage()).Bytes(), bundle.Zstd)))
		if !errors.Is(err, full) {
			t.Errorf("error %v", err)
		}
	}
}

// Streams of more members than memory has room for: a file is read again, standard input cannot be.
func TestManyMembersOfStream(t *testing.T) {
	junk := newJunkTar(t, 200_000, bundle.OCI(bundle.Good(goodName)).Bytes())
	var data bytes.Buffer
	if _, err := io.Copy(&data, io.NewSectionReader(blockwise{junk}, 0, junk.size())); err != nil {
		t.Fatal(err)
	}
	compressed := bundle.Compress(data.Bytes(), bundle.Zstd)
	before := heap()
	a := openBytes(t, compressed)
	if grown := heap() - before; grown > 24<<20 {
		t.Errorf("an open archive of 200,000 members holds %d MiB", grown>>20)
	}
	wantNames(t, a, goodName)
	wantManifest(t, a)
	_, err := OpenStream(t.Context(), bytes.NewReader(compressed), t.TempDir())
	wantError(t, err, CodeNotAnImage, "more members than are kept in memory")
}

// blockwise lets a junkTar be read in pieces of any size.
type blockwise struct{ junkTar }

func (b blockwise) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) && err == nil {
		var m int
		m, err = b.junkTar.ReadAt(p[n:], off+int64(n))
		n += m
	}
	return n, err
}

// Of an archive that is restored from its ledger the same is known as of one that was read.
func TestLedger(t *testing.T) {
	compressedLayers := bundle.Docker(bigImage())
	for _, name := range compressedLayers.Names() {
		if len(name) > 10 && name[len(name)-10:] == "/layer.tar" {
			compressedLayers = compressedLayers.Replace(name, bundle.Compress(compressedLayers.Get(name), bundle.Gzip))
		}
	}
	for name, data := range map[string][]byte{
		"oci":                      bundle.Compress(bundle.OCI(bigImage()).Bytes(), bundle.Zstd),
		"docker":                   bundle.Compress(bundle.Docker(bigImage()).Bytes(), bundle.Gzip),
		"docker compressed layers": compressedLayers.Bytes(),
	} {
		path := write(t, data)
		read := mustKeep(t, path, nil)
		ledger, err := read.Ledger()
		if err != nil || ledger == nil {
			t.Fatalf("%s: ledger %q, %v", name, ledger, err)
		}
		restored := mustKeep(t, path, func() []byte { return ledger })
		if !restored.Restored || restored.Format != read.Format || restored.Compression != read.Compression {
			t.Errorf("%s: restored %+v", name, restored)
		}
		wantNames(t, restored, goodName)
		for _, b := range read.list() {
			again, ok := restored.Blob(b.Digest)
			if !ok || again.Size != b.Size || again.Member != b.Member || again.Kept && again.Found != b.Digest {
				t.Errorf("%s: blob %+v, want %+v", name, again, b)
			}
		}
		wantManifest(t, restored)
		if restored.BytesRead() > 64<<10 {
			t.Errorf("%s: %d bytes read", name, restored.BytesRead())
		}
		if err := os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if mustKeep(t, path, func() []byte { return ledger }).Restored {
			t.Errorf("%s: another file is taken for the ledger's", name)
		}
	}
	if ledger, err := openBytes(t, bundle.OCI(bigImage()).Bytes()).Ledger(); ledger != nil || err != nil {
		t.Errorf("an archive whose index is read in no time has a ledger: %q, %v", ledger, err)
	}
}

func mustKeep(t *testing.T, path string, ledger func() []byte) *Archive {
	t.Helper()
	var k keeping
	a, err := Options{Keep: k.keep, Ledger: ledger}.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}
