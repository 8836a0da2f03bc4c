package preseed_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"seedbed/e2e/bundle"
	"seedbed/preseed"
)

// TestNamespaceDirectories is P18: what a file system puts there is passed over, what containerd
// would refuse is refused before anything is read, and the others are imported.
func TestNamespaceDirectories(t *testing.T) {
	s := openOffline(t, t.TempDir())
	dir := t.TempDir()
	long := strings.Repeat("n", 77)
	for _, namespace := range []string{"lost+found", ".hidden", "..data", "with space", long, "trail-", "UPPER", "a_b", "k8s.io"} {
		add(t, dir, namespace, files{"good.tar": oci(bundle.Good(good))})
	}
	must(t, os.WriteFile(filepath.Join(dir, "README"), []byte("read me"), 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "stray.tar"), oci(bundle.Good(good)), 0o644))
	const imported = "good.tar imported\n  example.com/good:v1 imported\n"
	r := importDir(t, s, dir, preseed.Options{})
	wantOutline(t, r, "README skipped\n"+long+" failed namespace\nstray.tar failed namespace\ntrail- failed namespace\nwith space failed namespace\n"+imported+imported+imported)
	for _, namespace := range []string{"UPPER", "a_b", "k8s.io"} {
		wantNames(t, s, namespace, good)
	}
}

// TestClutter is P17: files that are no bundles are skipped, each with a reason.
func TestClutter(t *testing.T) {
	f := files{"good.tar": oci(bundle.Good(good)), "sub/file": nil}
	for _, name := range []string{"README", ".DS_Store", "._x.tar", "x.tar.sha256", ".cache.json", "x.tar.loaded", "x.tar.part", "index.json.bak"} {
		f[name] = []byte("clutter")
	}
	r := importDir(t, openOffline(t, t.TempDir()), place(t, "k8s.io", f), preseed.Options{})
	if r.Failed() || r.Totals.Bundles != 1 || r.Totals.Skipped != 9 {
		t.Errorf("failed %v, totals %+v", r.Failed(), r.Totals)
	}
	for _, b := range r.Bundles {
		if b.Status == preseed.StatusSkipped && b.Reason == "" {
			t.Errorf("%s: skipped without a reason", b.Path)
		}
	}
}

// TestStrayIndex: an index.json among the bundles of a namespace, or beside the namespaces, is
// clutter and makes no OCI layout of the directory; with blobs beside it, it is a damaged one.
func TestStrayIndex(t *testing.T) {
	dir := place(t, "k8s.io", files{"good.tar": oci(bundle.Good(good)), "index.json": []byte("{}")})
	must(t, os.WriteFile(filepath.Join(dir, "index.json"), []byte("{}"), 0o644))
	must(t, os.MkdirAll(filepath.Join(dir, "k8s.io", "damaged", "blobs"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "k8s.io", "damaged", "index.json"), []byte("{}"), 0o644))
	wantOutline(t, importDir(t, openOffline(t, t.TempDir()), dir, preseed.Options{}), `
		index.json skipped
		damaged failed not_an_image
		good.tar imported
		  example.com/good:v1 imported
		index.json skipped
	`)
}

// TestUnreadable: what this user may not read fails by its own name, and the rest goes on. It runs
// itself as another user.
func TestUnreadable(t *testing.T) {
	if dir := os.Getenv("SEEDBED_TEST_UNREADABLE"); dir != "" {
		r, err := preseed.Check(t.Context(), []preseed.Source{{Path: dir}}, preseed.Options{})
		must(t, err)
		wantOutline(t, r, "closed failed permission\na.tar failed permission\nb.tar ok\n  example.com/b:1 ok\n")
		if b := r.Bundles[0]; b.Namespace != "" || b.Error.Hint == "" {
			t.Errorf("namespace %q, hint %q: want none, and a hint", b.Namespace, b.Error.Hint)
		}
		return
	}
	nobody := asNobodyDir(t)
	dir := filepath.Join(nobody, "bundles")
	add(t, dir, "closed", files{"a.tar": nil})
	add(t, dir, "open", files{"a.tar": oci(bundle.Good(good)), "b.tar": oci(image("example.com/b:1", "b"))})
	must(t, os.Chmod(filepath.Join(dir, "closed"), 0))
	must(t, os.Chmod(filepath.Join(dir, "open", "a.tar"), 0))
	asNobody(t, nobody, "SEEDBED_TEST_UNREADABLE="+dir)
}

// TestLinks is P19: links are followed, to archives and to namespace directories, and a dangling
// one is a failure.
func TestLinks(t *testing.T) {
	s := openOffline(t, t.TempDir())
	elsewhere := place(t, "real", files{"good.tar": oci(bundle.Good(good))})
	dir := place(t, "k8s.io", files{"b.tar": oci(image("example.com/b:1", "b"))})
	must(t, os.Symlink(filepath.Join(elsewhere, "real", "good.tar"), filepath.Join(dir, "k8s.io", "linked.tar")))
	must(t, os.Symlink("/nowhere/at/all", filepath.Join(dir, "k8s.io", "dangling.tar")))
	must(t, os.Symlink("loop.tar", filepath.Join(dir, "k8s.io", "loop.tar")))
	must(t, os.Symlink(filepath.Join(elsewhere, "real"), filepath.Join(dir, "other")))
	wantOutline(t, importDir(t, s, dir, preseed.Options{}), `
		b.tar imported
		  example.com/b:1 imported
		dangling.tar failed not_an_image
		linked.tar imported
		  example.com/good:v1 imported
		loop.tar failed not_an_image
		good.tar imported
		  example.com/good:v1 imported
	`)
}

// TestOrder is P32: the report has lexical order of namespace and file name, however many bundles are
// worked on at once and whichever is done first, and so has every list of names and warnings.
func TestOrder(t *testing.T) {
	dir := place(t, "k8s.io", files{
		"10-b.tar": oci(large()), "10-a.tar": oci(image("example.com/same:1", "a")), "9-c.tar": oci(image("example.com/same:1", "c")),
		"B.tar": []byte("bad"), "a.tar": oci(image("example.com/a:1", "a")),
	})
	add(t, dir, "a-namespace", files{"z.tar": oci(image("example.com/z:1", "z"))})
	for _, jobs := range []int{1, 2, 8} {
		r := importDir(t, openOffline(t, t.TempDir()), dir, preseed.Options{Jobs: jobs})
		wantOutline(t, r, `
			z.tar imported
			  example.com/z:1 imported
			10-a.tar unchanged
			  example.com/same:1 unchanged
			10-b.tar imported
			  example.com/large:1 imported
			9-c.tar imported
			  example.com/same:1 imported
			B.tar failed not_an_image
			a.tar imported
			  example.com/a:1 imported
		`)
	}
}

// TestSpecialFiles: a FIFO or a directory under a bundle's name is reported and not waited for.
func TestSpecialFiles(t *testing.T) {
	dir := place(t, "k8s.io", files{"good.tar": oci(bundle.Good(good)), "dir.tar/x": nil})
	must(t, syscall.Mkfifo(filepath.Join(dir, "k8s.io", "fifo.tar"), 0o600))
	layout := filepath.Join(dir, "k8s.io", "layout")
	must(t, bundle.WriteOCILayout(layout, image("example.com/layout:1", "layout")))
	wantOutline(t, importDir(t, openOffline(t, t.TempDir()), dir, preseed.Options{}), `
		dir.tar failed not_an_image
		fifo.tar failed not_an_image
		good.tar imported
		  example.com/good:v1 imported
		layout imported
		  example.com/layout:1 imported
	`)
}

// TestEmptySources is P31.
func TestEmptySources(t *testing.T) {
	s := openOffline(t, t.TempDir())
	missing := []preseed.Source{{Path: filepath.Join(t.TempDir(), "missing")}}
	if _, err := preseed.Import(t.Context(), s, missing, preseed.Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing directory: %v", err)
	}
	r, err := preseed.Import(t.Context(), s, missing, preseed.Options{IgnoreMissing: true})
	if err != nil || r.Totals.Bundles != 0 {
		t.Errorf("missing directory ignored: %+v, %v", r, err)
	}
	for _, dir := range []string{t.TempDir(), place(t, "k8s.io", files{"README": nil})} {
		if r := importDir(t, s, dir, preseed.Options{}); r.Failed() || r.Totals.Bundles != 0 {
			t.Errorf("empty directory: %+v", r.Totals)
		}
	}
}

// TestSingleBundles needs a namespace to import a file, and none to check it.
func TestSingleBundles(t *testing.T) {
	s := openOffline(t, t.TempDir())
	path := filepath.Join(place(t, "d", files{"good.tar": oci(bundle.Good(good))}), "d", "good.tar")
	source := []preseed.Source{{Path: path}}
	r, err := preseed.Import(t.Context(), s, source, preseed.Options{})
	must(t, err)
	wantOutline(t, r, "good.tar failed namespace\n")
	r, err = preseed.Import(t.Context(), s, source, preseed.Options{Namespace: "k8s.io"})
	must(t, err)
	wantOutline(t, r, "good.tar imported\n  example.com/good:v1 imported\n")
	r, err = preseed.Check(t.Context(), source, preseed.Options{})
	must(t, err)
	wantOutline(t, r, "good.tar ok\n  example.com/good:v1 ok\n")
	_, err = preseed.Import(t.Context(), s, source, preseed.Options{Platform: "no such/platform/at/all"})
	var option *preseed.OptionError
	if !errors.As(err, &option) {
		t.Errorf("bad platform: %v", err)
	}
}

// TestCheck gives a verdict of each image without a store: a flipped byte is found however large
// the layer is and whoever else has it.
func TestCheck(t *testing.T) {
	dir := place(t, "k8s.io", files{
		"a.tar": oci(large()), "b.tar": bundle.OCI(large()).FlipByte(layerOf(large())).Bytes(), "c.tar": docker(bundle.Good("app:1")),
		"d.tar": bundle.Compress(oci(image("example.com/d:1", "d")), bundle.Zstd),
	})
	r, err := preseed.Check(t.Context(), []preseed.Source{{Path: dir}}, preseed.Options{Require: []string{"app:1", "example.com/absent:1"}})
	must(t, err)
	wantOutline(t, r, `
		a.tar ok
		  example.com/large:1 ok
		b.tar failed digest_mismatch
		  example.com/large:1 failed
		c.tar ok
		  docker.io/library/app:1 ok
		d.tar ok
		  example.com/d:1 ok
	`)
	if !r.Required[0].Present || r.Required[1].Present || !r.Failed() {
		t.Errorf("required %+v", r.Required)
	}
}

// TestCheckOfPlainDirectory needs no namespaces: they matter only for an import.
func TestCheckOfPlainDirectory(t *testing.T) {
	dir := place(t, ".", files{"a.tar": oci(bundle.Good(good)), "notes": nil})
	r, err := preseed.Check(t.Context(), []preseed.Source{{Path: dir}}, preseed.Options{})
	must(t, err)
	wantOutline(t, r, "a.tar ok\n  example.com/good:v1 ok\nnotes skipped\n")
}

// TestImportInterrupted leaves nothing behind when its context ends.
func TestImportInterrupted(t *testing.T) {
	s := openOffline(t, t.TempDir())
	dir := place(t, "k8s.io", files{"a.tar": oci(large())})
	ctx, cancel := context.WithCancel(t.Context())
	o := preseed.Options{Progress: func(e preseed.Event) {
		if e.Kind == preseed.EventCopy {
			cancel()
		}
	}}
	r, err := preseed.Import(ctx, s, []preseed.Source{{Path: dir}}, o)
	if !errors.Is(err, context.Canceled) || r == nil || !r.Failed() {
		t.Errorf("report %+v, error %v", r, err)
	}
	wantNames(t, s, "k8s.io")
	wantClean(t, s, "k8s.io")
}

func newReader(data []byte) io.Reader { return bytes.NewReader(data) }

// waitForIngest waits until the store knows that the ingest's writer has gone.
func waitForIngest(t *testing.T, s *preseed.Store) {
	t.Helper()
	for range 100 {
		all, err := s.Content.ListStatuses(in(t, "k8s.io"))
		if err == nil && len(all) == 1 && all[0].Offset > 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("no ingest to begin with")
}
