package preseed_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"seedbed/e2e/bundle"
	"seedbed/e2e/containerd"
	"seedbed/preseed"
)

// TestImportGivesUpOnHangingContainerd: a containerd that is there and answers nothing any more, in
// the middle of a blob, ends the import by itself, and the report says why. One that goes on while
// the import waits for it is worked with again.
func TestImportGivesUpOnHangingContainerd(t *testing.T) {
	d := containerd.Start(t)
	dir := place(t, "k8s.io", files{"a.tar": oci(large()), "b.tar": oci(bundle.Good(good))})
	const failed = "a.tar failed unavailable\n  example.com/large:1 failed\nb.tar failed unavailable\n  example.com/good:v1 failed\n"
	const imported = "a.tar imported\n  example.com/large:1 imported\nb.tar imported\n  example.com/good:v1 imported\n"
	for _, c := range []struct {
		name, want string
		reconnect  func(context.Context) (*preseed.Store, error)
	}{
		{"for ever", failed, nil},
		{"for a while", imported, func(ctx context.Context) (*preseed.Store, error) {
			d.Signal(t, syscall.SIGCONT)
			return connect(t, d), nil
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var hang sync.Once
			o := preseed.Options{Jobs: 1, Reconnect: c.reconnect, Progress: func(e preseed.Event) {
				if e.Kind == preseed.EventCopy {
					hang.Do(func() { d.Signal(t, syscall.SIGSTOP) })
				}
			}}
			begin := time.Now()
			r := importDir(t, connect(t, d), dir, o)
			took := time.Since(begin)
			d.Signal(t, syscall.SIGCONT)
			wantOutline(t, r, c.want)
			if c.want == failed && !strings.Contains(r.Bundles[0].Reason, "does not answer any more") {
				t.Errorf("reason %q", r.Bundles[0].Reason)
			}
			if took > 40*time.Second {
				t.Errorf("took %s", took)
			}
		})
	}
	s := preseed.NewStore(d.Client(t))
	wantComplete(t, s, "k8s.io", "example.com/large:1")
}

// connect connects as the command line does.
func connect(t *testing.T, d *containerd.Daemon) *preseed.Store {
	t.Helper()
	c, err := preseed.Connect(t.Context(), d.Address, time.Second)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return preseed.NewStore(c)
}

// TestImportOutlastsSlowStore: a store that takes longer for a blob than the silence that is borne is
// waited for, because it answers when it is asked.
func TestImportOutlastsSlowStore(t *testing.T) {
	d := containerd.Start(t)
	s := connect(t, d)
	pings := make(chan struct{}, 100)
	ping := s.Ping
	s.Ping = func(ctx context.Context) error { pings <- struct{}{}; return ping(ctx) }
	dir := place(t, "k8s.io", files{"a.tar": oci(large())})
	var once sync.Once
	r := importDir(t, s, dir, preseed.Options{Progress: func(e preseed.Event) {
		if e.Kind == preseed.EventCopy {
			once.Do(func() { // longer than Connect's least patience of 5 s
				for range 7 {
					<-pings
				}
			})
		}
	}})
	wantOutline(t, r, "a.tar imported\n  example.com/large:1 imported\n")
}

// TestImportWhenIngestVanishes: what another process takes away of a blob that is being written, such
// as the late clean-up of an import that a hanging containerd held up, is written again.
func TestImportWhenIngestVanishes(t *testing.T) {
	s := preseed.NewStore(containerd.Start(t).Client(t))
	dir := place(t, "k8s.io", files{"a.tar": oci(large())})
	var once sync.Once
	r := importDir(t, s, dir, preseed.Options{Progress: func(e preseed.Event) {
		if e.Kind != preseed.EventCopy || e.BytesDone == 0 {
			return
		}
		once.Do(func() {
			all, err := s.Content.ListStatuses(in(t, "k8s.io"))
			if err == nil && len(all) == 0 {
				err = errors.New("no ingest")
			}
			for _, status := range all {
				err = errors.Join(err, s.Content.Abort(in(t, "k8s.io"), status.Ref))
			}
			if err != nil {
				t.Error(err)
			}
		})
	}})
	wantOutline(t, r, "a.tar imported\n  example.com/large:1 imported\n")
	wantComplete(t, s, "k8s.io", "example.com/large:1")
	wantClean(t, s, "k8s.io")
}
