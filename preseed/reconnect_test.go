package preseed_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"seedbed/e2e/bundle"
	"seedbed/e2e/containerd"
	"seedbed/preseed"
)

// TestImportReconnects: containerd stops in the middle and comes back. The import goes on, once, and
// leaves nothing of the first attempt.
func TestImportReconnects(t *testing.T) {
	d := containerd.Start(t)
	dir := place(t, "k8s.io", files{"a.tar": oci(large()), "b.tar": oci(bundle.Good(good))})
	tries := 0
	o := preseed.Options{Jobs: 1, Progress: func(e preseed.Event) {
		if e.Kind == preseed.EventCopy && tries == 0 {
			d.Kill()
		}
	}, Reconnect: func(ctx context.Context) (*preseed.Store, error) {
		tries++
		d.Launch(t)
		c, err := preseed.Connect(ctx, d.Address, time.Minute)
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { c.Close() })
		return preseed.NewStore(c), nil
	}}
	r := importDir(t, preseed.NewStore(d.Client(t)), dir, o)
	wantOutline(t, r, "a.tar imported\n  example.com/large:1 imported\nb.tar imported\n  example.com/good:v1 imported\n")
	if tries != 1 || r.Totals.Imported != 2 {
		t.Errorf("%d reconnects, totals %+v: want 1 and 2 imported", tries, r.Totals)
	}
	s := preseed.NewStore(d.Client(t))
	wantComplete(t, s, "k8s.io", "example.com/large:1")
	wantClean(t, s, "k8s.io")
}

// TestSandboxWarning is about nodes that would start no pod.
func TestSandboxWarning(t *testing.T) {
	const sandbox = "registry.example.com/pause:1"
	cases := []struct {
		name, namespace string
		images          []bundle.Image
		warning         string
	}{
		{"there", "k8s.io", []bundle.Image{image(sandbox, "pause")}, ""},
		{"absent", "k8s.io", []bundle.Image{bundle.Good(good)}, `"registry.example.com/pause:1"`},
		{"elsewhere", "other", []bundle.Image{image(sandbox, "pause")}, "no bundle has an image for it"},
		{"nothing", "k8s.io", nil, "no bundle has an image for it"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if c.images != nil {
				add(t, dir, c.namespace, files{"a.tar": oci(c.images...)})
			}
			for _, strict := range []bool{false, true} {
				r, err := preseed.Check(t.Context(), []preseed.Source{{Path: dir}}, preseed.Options{Sandbox: sandbox, Strict: strict})
				must(t, err)
				warned := slices.ContainsFunc(r.Warnings, func(w string) bool { return c.warning != "" && strings.Contains(w, c.warning) })
				if warned != (c.warning != "") || len(r.Warnings) > 1 || r.Failed() != (strict && c.name != "there" && c.name != "elsewhere") {
					t.Errorf("strict %v: warnings %q, failed %v", strict, r.Warnings, r.Failed())
				}
			}
		})
	}
}
