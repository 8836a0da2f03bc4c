package preseed_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/images"

	"seedbed/e2e/bundle"
	"seedbed/e2e/containerd"
	"seedbed/preseed"
	"seedbed/preseed/offline"
)

// kills is how many imports are killed on each kind of store.
const kills = 25

// TestImportKilled kills imports at random moments, every other one of them with unpacking. The next
// import leaves every image whole, and no lease or ingest. The imports to be killed are this test, run
// as programs of their own.
func TestImportKilled(t *testing.T) {
	if os.Getenv("SEEDBED_TEST_KILL") != "" {
		importToBeKilled(t)
		return
	}
	dir := place(t, "k8s.io", files{"a.tar": oci(large()), "b.tar": oci(layered(good)), "c.tar": docker(bundle.Good("app:1"))})
	t.Run("offline", func(t *testing.T) {
		for n := range kills {
			root := t.TempDir()
			killImport(t, dir, n, "SEEDBED_TEST_ROOT="+root)
			finishKilled(t, openToUnpack(t, root), dir, n)
		}
	})
	t.Run("online", func(t *testing.T) {
		d := containerd.Start(t)
		s := preseed.NewStore(d.Client(t))
		for n := range kills {
			killImport(t, dir, n, "SEEDBED_TEST_ADDRESS="+d.Address)
			finishKilled(t, s, dir, n)
			for _, name := range names(t, s, "k8s.io") {
				must(t, s.Images.Delete(in(t, "k8s.io"), name, images.SynchronousDelete()))
			}
		}
	})
}

func finishKilled(t *testing.T, s *preseed.Store, dir string, n int) {
	t.Helper()
	o := preseed.Options{Unpack: n%2 == 0}
	want := []string{"docker.io/library/app:1", good, "example.com/large:1"}
	if r := importDir(t, s, dir, o); r.Failed() {
		t.Errorf("import after kill %d:\n%s%s", n, outline(r), reasons(r))
	}
	wantNames(t, s, "k8s.io", want...)
	verified, err := preseed.Verify(t.Context(), s, []preseed.Source{{Path: dir}}, o)
	if err != nil || verified.Failed() {
		t.Errorf("verification after kill %d: %v\n%s", n, err, outline(verified))
	}
	wantClean(t, s, "k8s.io")
}

// reasons lists why bundles failed.
func reasons(r *preseed.Report) string {
	var out strings.Builder
	for _, b := range r.Bundles {
		if b.Error != nil {
			fmt.Fprintf(&out, "%s: %s\n", b.Path, b.Reason)
		}
	}
	return out.String()
}

func openToUnpack(t *testing.T, root string) *preseed.Store {
	t.Helper()
	s, err := offline.Open(t.Context(), root, offline.Options{Snapshotter: "overlayfs"})
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s.Preseed()
}

// TestImportStopsThoughContainerdHangs: a containerd that answers no more, stopped in the middle of
// a blob, does not keep an import from ending when it is told to, and the next one finishes.
func TestImportStopsThoughContainerdHangs(t *testing.T) {
	d := containerd.Start(t)
	dir := place(t, "k8s.io", files{"a.tar": oci(large()), "b.tar": oci(bundle.Good(good))})
	ctx, cancel := context.WithCancel(t.Context())
	var hang sync.Once
	var told time.Time
	progress := func(e preseed.Event) {
		if e.Kind == preseed.EventCopy {
			hang.Do(func() {
				d.Signal(t, syscall.SIGSTOP)
				told = time.Now()
				cancel()
			})
		}
	}
	s := preseed.NewStore(d.Client(t))
	_, err := preseed.Import(ctx, s, []preseed.Source{{Path: dir}}, preseed.Options{Progress: progress})
	if took := time.Since(told); !errors.Is(err, context.Canceled) || took > 20*time.Second {
		t.Errorf("import: %v, ended %s after it was told to", err, took)
	}
	d.Signal(t, syscall.SIGCONT)
	if r := importDir(t, s, dir, preseed.Options{}); r.Failed() {
		t.Errorf("import after containerd went on:\n%s%s", outline(r), reasons(r))
	}
	wantComplete(t, s, "k8s.io", "example.com/large:1")
}

func killImport(t *testing.T, dir string, n int, store string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestImportKilled$")
	cmd.Env = append(os.Environ(), "SEEDBED_TEST_KILL="+dir, store)
	if n%2 == 0 {
		cmd.Env = append(cmd.Env, "SEEDBED_TEST_UNPACK=1")
	}
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	_, _ = out.Read(make([]byte, 1)) // the import begins
	time.Sleep(rand.N(80 * time.Millisecond))
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

func importToBeKilled(t *testing.T) {
	sources := []preseed.Source{{Path: os.Getenv("SEEDBED_TEST_KILL")}}
	var s *preseed.Store
	if address := os.Getenv("SEEDBED_TEST_ADDRESS"); address != "" {
		c, err := preseed.Connect(t.Context(), address, time.Minute)
		must(t, err)
		s = preseed.NewStore(c)
	} else {
		s = openToUnpack(t, os.Getenv("SEEDBED_TEST_ROOT"))
	}
	os.Stdout.WriteString("begin\n")
	_, err := preseed.Import(t.Context(), s, sources, preseed.Options{Unpack: os.Getenv("SEEDBED_TEST_UNPACK") != ""})
	must(t, err)
}
