package preseed_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"seedbed/e2e/bundle"
	"seedbed/e2e/containerd"
	"seedbed/preseed"
	"seedbed/preseed/offline"
)

// TestImportKilled kills imports at random moments, one after another on the same store. The next
// import that may end leaves every image whole, and no lease or ingest. The imports to be killed
// are this test, run as programs of their own.
func TestImportKilled(t *testing.T) {
	if os.Getenv("SEEDBED_TEST_KILL") != "" {
		importToBeKilled(t)
		return
	}
	const kills = 8
	dir := place(t, "k8s.io", files{"a.tar": oci(large()), "b.tar": oci(bundle.Good(good)), "c.tar": docker(bundle.Good("app:1"))})
	images := []string{"docker.io/library/app:1", good, "example.com/large:1"}
	finish := func(t *testing.T, s *preseed.Store) {
		if r := importDir(t, s, dir, preseed.Options{}); r.Failed() {
			t.Errorf("import after the kills:\n%s", outline(r))
		}
		wantNames(t, s, "k8s.io", images...)
		for _, name := range images {
			wantComplete(t, s, "k8s.io", name)
		}
		wantClean(t, s, "k8s.io")
	}
	t.Run("offline", func(t *testing.T) {
		root := t.TempDir()
		for range kills {
			killImport(t, dir, "SEEDBED_TEST_ROOT="+root)
		}
		finish(t, openOffline(t, root))
	})
	t.Run("online", func(t *testing.T) {
		d := containerd.Start(t)
		for range kills {
			killImport(t, dir, "SEEDBED_TEST_ADDRESS="+d.Address)
		}
		finish(t, preseed.NewStore(d.Client(t)))
	})
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
		t.Errorf("import after containerd went on:\n%s", outline(r))
	}
	wantComplete(t, s, "k8s.io", "example.com/large:1")
}

func killImport(t *testing.T, dir, store string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestImportKilled$")
	cmd.Env = append(os.Environ(), "SEEDBED_TEST_KILL="+dir, store)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	_, _ = out.Read(make([]byte, 1)) // the import begins
	time.Sleep(rand.N(60 * time.Millisecond))
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

func importToBeKilled(t *testing.T) {
	sources := []preseed.Source{{Path: os.Getenv("SEEDBED_TEST_KILL")}}
	os.Stdout.WriteString("begin\n")
	var s *preseed.Store
	if address := os.Getenv("SEEDBED_TEST_ADDRESS"); address != "" {
		c, err := preseed.Connect(t.Context(), address, time.Minute)
		must(t, err)
		s = preseed.NewStore(c)
	} else {
		o, err := offline.Open(t.Context(), os.Getenv("SEEDBED_TEST_ROOT"), offline.Options{LockTimeout: time.Minute})
		must(t, err)
		defer o.Close()
		s = o.Preseed()
	}
	_, err := preseed.Import(t.Context(), s, sources, preseed.Options{})
	must(t, err)
}
