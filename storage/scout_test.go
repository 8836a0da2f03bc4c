package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// wide is a layout that is worth a scout: 40 directories with 40 FIFOs in each.
func wide(t *testing.T) *Layout {
	t.Helper()
	var lines []string
	for i := range 40 {
		lines = append(lines, fmt.Sprintf("dir /d%02d 0755", i))
		for j := range 40 {
			lines = append(lines, fmt.Sprintf("fifo /d%02d/f%02d 0600", i, j))
		}
	}
	return layout(t, lines...)
}

// TestTheScoutSeesWhatThePlannerWould changes a tree at both ends and in the middle: the plan is that of a planner
// which looks at everything itself.
func TestTheScoutSeesWhatThePlannerWould(t *testing.T) {
	root := t.TempDir()
	l := wide(t)
	place(t, l, root)
	for _, i := range []int{0, 19, 20, 39} {
		dir := fmt.Sprintf("%s/d%02d", root, i)
		must(t, os.Chmod(dir+"/f01", 0o644))
		must(t, os.Remove(dir+"/f02"))
		must(t, os.Remove(dir+"/f03"))
		write(t, dir+"/f03", "")
	}
	must(t, os.Rename(root+"/d38", root+"/elsewhere"))
	must(t, os.Symlink("elsewhere", root+"/d38")) // the scout goes by no link
	must(t, os.RemoveAll(root+"/d37"))
	before := snapshot(t, root)
	with, err := NewPlan(t.Context(), l, PlaceOptions{Root: root})
	if !errors.As(err, new(*Conflict)) {
		t.Fatalf("NewPlan: %v: expected conflicts", err)
	}
	w, err := newWalker(root)
	must(t, err)
	defer w.Close()
	alone := newPlanner(w, l, false)
	alone.caller = &owner{os.Geteuid(), os.Getegid()}
	w.caller = alone.caller
	w.root.absent = true // no scout is sent into a root that is absent
	order := make([]*Node, len(alone.placed))
	if w.sendScout(order) != nil {
		t.Fatal("a scout was sent")
	}
	w.root.absent = false
	for i := range alone.placed {
		alone.node(&alone.placed[i]) // wide is in order
	}
	if len(alone.plan.Steps) == 0 || len(with.Steps) < len(alone.plan.Steps) {
		t.Fatalf("%d steps with a scout, %d without", len(with.Steps), len(alone.plan.Steps))
	}
	for i, want := range alone.plan.Steps {
		if got := with.Steps[i]; got.Action != want.Action || got.Path != want.Path || got.From != want.From || got.To != want.To || got.found != want.found {
			t.Errorf("step %d: %s %s %s→%s: expected %s %s %s→%s", i, got.Action, got.Path, got.From, got.To, want.Action, want.Path, want.From, want.To)
		}
	}
	untouched(t, root, before)
}

// TestASightingIsOfItsDirectory: what was seen in another directory than the planner walked to is not taken.
func TestASightingIsOfItsDirectory(t *testing.T) {
	root := t.TempDir()
	place(t, layout(t, "dir /a 0755", "fifo /a/f 0600", "dir /b 0755", "fifo /b/f 0644"), root)
	w, err := newWalker(root)
	must(t, err)
	defer w.Close()
	s := &scout{root: w.root.fd}
	for _, c := range []struct {
		from, to string
		want     Mode
	}{{"/b/", "/a", 0o600}, {"/a/", "/a", 0o600}, {"/a/", "/b", 0o644}} {
		at := s.reach(c.from)
		seen := at.look("f")
		at.leave()
		dir, _, err := w.locate(c.to + "/f")
		must(t, err)
		w.ahead = &seen
		got, err := dir.look("f")
		must(t, err)
		if got.mode != c.want {
			t.Errorf("seen in %s, asked for in %s: mode %s: expected %s", c.from, c.to, got.mode, c.want)
		}
	}
}

// TestTheScoutComesHome: it ends with the planner, and leaves no descriptor open.
func TestTheScoutComesHome(t *testing.T) {
	root := t.TempDir()
	l := wide(t)
	place(t, l, root)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	open := func() int {
		names, err := os.ReadDir("/proc/self/fd")
		must(t, err)
		return len(names)
	}
	before := open()
	for range 50 {
		if _, err := NewPlan(ctx, l, PlaceOptions{Root: root}); !errors.Is(err, context.Canceled) {
			t.Fatalf("NewPlan: %v: expected that it is cancelled", err)
		}
	}
	if after := open(); after != before {
		t.Errorf("%d descriptors open: expected %d", after, before)
	}
	if s := (&scout{root: unix.AT_FDCWD}).reach("/no/such"); s.open {
		t.Error("a directory that is absent was opened")
	}
}
