package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestOneAtATime(t *testing.T) {
	root := t.TempDir()
	w, err := newWalker(root)
	must(t, err)
	defer w.Close()
	unlock, err := w.lock(t.Context(), 0)
	must(t, err)
	l := layout(t, "dir /a 0755")
	before := snapshot(t, root)
	_, err = Place(t.Context(), l, PlaceOptions{Root: root})
	if !errors.Is(err, ErrLocked) {
		t.Fatalf("Place: %v: expected ErrLocked", err)
	}
	untouched(t, root, before)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Place(ctx, l, PlaceOptions{Root: root, WaitLock: time.Minute}); !errors.Is(err, context.Canceled) {
		t.Errorf("Place: %v: expected that waiting ends with the context", err)
	}
	time.AfterFunc(50*time.Millisecond, unlock)
	if _, err := Place(t.Context(), l, PlaceOptions{Root: root, WaitLock: time.Minute}); err != nil {
		t.Errorf("Place with WaitLock: %v", err)
	}
}

func TestManyAtOnceIntoANewRoot(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	l := builtin(t, "node")
	var group sync.WaitGroup
	written := make(chan bool, 8)
	for range cap(written) {
		group.Go(func() {
			r, err := Place(t.Context(), l, PlaceOptions{Root: root, WaitLock: time.Minute})
			if err != nil {
				t.Errorf("Place: %v", err)
				return
			}
			written <- r.Written
		})
	}
	group.Wait()
	close(written)
	n := 0
	for w := range written {
		if w {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d runs wrote: expected 1", n)
	}
}

func TestAUserPlacesATreeOfItsOwn(t *testing.T) {
	home := userDir(t)
	l := builtin(t, "node")
	root := filepath.Join(home, "root")
	must(t, asUser(t, func() error {
		r, err := Place(t.Context(), l, PlaceOptions{Root: root})
		if err != nil {
			return err
		}
		if n := r.Manifest.Nodes[1]; n.UID != 65534 || n.GID != 65534 {
			return fmt.Errorf("the manifest says %d:%d: expected the caller", n.UID, n.GID)
		}
		again, err := Place(t.Context(), l, PlaceOptions{Root: root})
		if err != nil || again.Plan.Changed() != 0 || again.Written {
			return fmt.Errorf("second run: %v, %d changed, written %v", err, again.Plan.Changed(), again.Written)
		}
		m, err := ReadManifest(DefaultManifest(root))
		if err != nil {
			return err
		}
		drifts, err := Check(t.Context(), m)
		if len(drifts) > 0 {
			return fmt.Errorf("drifts: %v", drifts)
		}
		return err
	}))
	for _, line := range snapshot(t, root) {
		if !strings.Contains(line, " 65534:65534 ") {
			t.Errorf("of another owner: %s", line)
		}
	}
	if _, err := ReadManifest(DefaultManifest(root)); !errors.Is(err, ErrUntrusted) {
		t.Errorf("root reads a user's manifest: %v: expected ErrUntrusted", err)
	}
}

func TestAUserIsRefusedBeforeTheFirstWrite(t *testing.T) {
	cases := []struct {
		name    string
		prepare func(root string)
		layout  []string
		uid     int
	}{
		{"a directory of root's", func(root string) { must(t, os.Mkdir(root+"/d", 0o755)) }, []string{"dir /a 0755", "dir /d/x 0755"}, 0},
		{"a mode of root's", func(root string) { must(t, os.Mkdir(root+"/d", 0o755)) }, []string{"dir /a 0755", "dir /d 0700"}, 0},
		{"a closed directory", func(root string) { must(t, os.Mkdir(root+"/d", 0o700)) }, []string{"dir /a 0755", "dir /d/x/y 0755"}, 0},
		{"another owner", func(string) {}, []string{"dir /a 0755"}, 12},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			root := userDir(t)
			c.prepare(root)
			l := layout(t, c.layout...)
			l.Nodes[0].UID = c.uid
			before := snapshot(t, root)
			err := asUser(t, func() error {
				_, err := Place(t.Context(), l, PlaceOptions{Root: root})
				return err
			})
			if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), root) {
				t.Errorf("Place: %v: expected permission, and where", err)
			}
			untouched(t, root, before)
		})
	}
}

// TestWhatIsHalfDoneIsTakenBack lets the last step fail: the directory of the FIFO is replaced after the plan.
func TestWhatIsHalfDoneIsTakenBack(t *testing.T) {
	root := t.TempDir()
	must(t, os.Mkdir(root+"/old", 0o700))
	l := layout(t, "dir /a 0755", "dir /a/b 0755", "dir /old 0755", "fifo /z/f 0600")
	w, err := newWalker(root)
	must(t, err)
	defer w.Close()
	o, err := PlaceOptions{Root: root}.withDefaults()
	must(t, err)
	must(t, os.Mkdir(root+"/z", 0o755))
	p, err := newPlan(t.Context(), w, l, o)
	must(t, err)
	write(t, root+"/z/f", "mine")
	_, err = p.finish(t.Context(), &journal{}, p.Steps)
	var i *Interrupted
	var c *Conflict
	if !errors.As(err, &i) || !errors.As(err, &c) || i.Undone != i.Done || i.Done == 0 || c.Got != "file" {
		t.Fatalf("finish: %v: expected a conflict and everything taken back", err)
	}
	if got := modeOf(t, root+"/old"); got != unix.S_IFDIR|0o700 {
		t.Errorf("old has mode %o: expected what it was", got)
	}
	for _, gone := range []string{"/a", "/run"} {
		if _, err := os.Lstat(root + gone); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left", gone)
		}
	}
}

// TestWhatWasReplacedIsNotChanged exchanges nodes between the plan, which wants to chmod them, and the work.
func TestWhatWasReplacedIsNotChanged(t *testing.T) {
	for _, kind := range []Kind{KindDir, KindFIFO} {
		root := t.TempDir()
		create := func(name string) {
			if kind == KindDir {
				must(t, os.Mkdir(name, 0o700))
				return
			}
			must(t, unix.Mkfifo(name, 0o600))
		}
		create(root + "/x")
		w, err := newWalker(root)
		must(t, err)
		defer w.Close()
		o, err := PlaceOptions{Root: root}.withDefaults()
		must(t, err)
		p, err := newPlan(t.Context(), w, layout(t, string(kind)+" /x 0644"), o)
		must(t, err)
		w.keepOnly(w.root)
		must(t, os.Rename(root+"/x", root+"/was"))
		create(root + "/x")
		if _, err := p.finish(t.Context(), &journal{}, p.Steps); !errors.Is(err, errReplaced) || !strings.Contains(err.Error(), root+"/x") {
			t.Errorf("%s: finish: %v: expected that it is refused", kind, err)
		}
		for _, name := range []string{"/x", "/was"} {
			if got := modeOf(t, root+name) & 0o077; got != 0 {
				t.Errorf("%s: %s was changed: mode %o", kind, name, got)
			}
		}
	}
}

func TestOnlyInAnImage(t *testing.T) {
	l := layout(t, "symlink /seedbed-test-absent 0777 /x")
	l.Nodes[0].When = WhenImage
	p, err := NewPlan(t.Context(), l, PlaceOptions{Root: "/", Mounts: MountsIgnore, Manifest: t.TempDir() + "/m.json"})
	if err != nil || p.Changed() != 0 || p.manifest.Nodes[0].State != StateAbsent {
		t.Errorf("root /: %v, steps %v: expected that nothing is made", err, p.Steps)
	}
	if got := steps(place(t, l, t.TempDir()).Plan, ActionMake); !strings.HasPrefix(strings.Join(got, " "), "/seedbed-test-absent") {
		t.Errorf("another root: make steps %v: expected the link", got)
	}
}

// TestTheManifestIsWithdrawn lets a step fail that cannot be taken back wholly: somebody puts a file into a new
// directory meanwhile.
func TestTheManifestIsWithdrawn(t *testing.T) {
	root := t.TempDir()
	place(t, layout(t, "dir /a 0755"), root)
	w, err := newWalker(root)
	must(t, err)
	defer w.Close()
	o, err := PlaceOptions{Root: root}.withDefaults()
	must(t, err)
	p, err := newPlan(t.Context(), w, layout(t, "dir /a 0755", "dir /b 0755"), o)
	must(t, err)
	log := &journal{}
	must(t, log.run(t.Context(), p.Steps))
	write(t, root+"/b/mine", "")
	err = p.takeBack(log, false, errors.New("test"))
	var i *Interrupted
	if !errors.As(err, &i) || !i.Withdrawn {
		t.Errorf("takeBack: %v: expected the manifest withdrawn", err)
	}
	if _, err := ReadManifest(DefaultManifest(root)); !errors.Is(err, ErrNoManifest) {
		t.Errorf("ReadManifest: %v: expected ErrNoManifest", err)
	}
	if _, err := os.Stat(root + "/b/mine"); err != nil {
		t.Error(err)
	}
}

func TestACancelledPlaceLeavesNothing(t *testing.T) {
	root := t.TempDir()
	w, err := newWalker(root)
	must(t, err)
	defer w.Close()
	o, err := PlaceOptions{Root: root}.withDefaults()
	must(t, err)
	before, err := os.ReadDir(root)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	p, err := newPlan(ctx, w, builtin(t, "node"), o)
	must(t, err)
	log := &journal{}
	must(t, log.run(ctx, p.Steps[:10]))
	cancel()
	if _, err := p.finish(ctx, log, p.Steps[10:]); !errors.Is(err, context.Canceled) {
		t.Errorf("finish: %v: expected that it is cancelled", err)
	}
	if after, err := os.ReadDir(root); err != nil || len(after) != len(before) {
		t.Errorf("left: %v, %v", after, err)
	}
}

// TestRaceOfALinkAndADirectory flips a directory and a link that leads out while the tree is placed below it.
func TestRaceOfALinkAndADirectory(t *testing.T) {
	above := t.TempDir()
	root, outside := above+"/root", above+"/outside"
	must(t, os.MkdirAll(root+"/flip", 0o755))
	must(t, os.Mkdir(outside, 0o755))
	must(t, os.Symlink(outside, root+"/link"))
	stop := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				unix.Renameat2(unix.AT_FDCWD, root+"/flip", unix.AT_FDCWD, root+"/link", unix.RENAME_EXCHANGE)
			}
		}
	})
	lines := []string{"dir /flip 0755"}
	for i := range 50 {
		lines = append(lines, fmt.Sprintf("dir /flip/d%d 0755", i), fmt.Sprintf("fifo /flip/d%d/f 0600", i))
	}
	l := layout(t, lines...)
	for range 50 {
		Place(t.Context(), l, PlaceOptions{Root: root}) // an error is right; what counts is what it leaves outside
	}
	close(stop)
	group.Wait()
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		t.Errorf("outside the root: %v, %v", left, err)
	}
}

func TestDebrisOfAKilledRunIsSwept(t *testing.T) {
	root := t.TempDir()
	l := layout(t, "dir /a 0755")
	place(t, l, root)
	dir := root + "/run/seedbed/"
	write(t, dir+tempPrefix+"X"+tempSuffix, "half")
	must(t, os.Mkdir(dir+tempPrefix+"D"+tempSuffix, 0o755))
	place(t, l, root)
	for name, there := range map[string]bool{"X": false, "D": true} {
		if _, err := os.Lstat(dir + tempPrefix + name + tempSuffix); errors.Is(err, fs.ErrNotExist) == there {
			t.Errorf("%s: %v: expected that it is there: %v", name, err, there)
		}
	}
}

// TestSweepingLeavesWritersAlone: what another program is writing in the manifest's directory stays until it is dead.
func TestSweepingLeavesWritersAlone(t *testing.T) {
	root := t.TempDir()
	l := layout(t, "dir /a 0755")
	place(t, l, root)
	dir, err := os.Open(root + "/run/seedbed")
	must(t, err)
	defer dir.Close()
	file, name, err := createTemp(dir)
	must(t, err)
	for _, alive := range []bool{true, false} {
		if !alive {
			must(t, file.Close())
		}
		place(t, l, root)
		if _, err := os.Lstat(filepath.Join(dir.Name(), name)); errors.Is(err, fs.ErrNotExist) == alive {
			t.Errorf("the writer lives: %v: %v", alive, err)
		}
	}
}

// TestWritingWhileSweeping lets writers and sweepers meet at any point.
func TestWritingWhileSweeping(t *testing.T) {
	dir := t.TempDir()
	w, err := newWalker(dir)
	must(t, err)
	defer w.Close()
	done := make(chan struct{})
	var writers, sweepers sync.WaitGroup
	for i := range 4 {
		name := filepath.Join(dir, fmt.Sprint(i))
		writers.Go(func() {
			for range 50 {
				if err := WriteFile(name, []byte(name), 0o600); err != nil {
					t.Errorf("WriteFile: %v", err)
				}
			}
		})
	}
	sweepers.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if err := w.root.sweep(); err != nil {
				t.Errorf("sweep: %v", err)
			}
		}
	})
	writers.Wait()
	close(done)
	sweepers.Wait()
	if left, err := os.ReadDir(dir); err != nil || len(left) != 4 {
		t.Errorf("left: %v, %v: expected 4 files", left, err)
	}
}

func TestManyDirectoriesNeedFewDescriptors(t *testing.T) {
	root := t.TempDir()
	var lines []string
	for i := range 1000 {
		lines = append(lines, fmt.Sprintf("fifo /d%d/f 0600", i))
	}
	l := layout(t, lines...)
	w, err := newWalker(root)
	must(t, err)
	place(t, l, root)
	o, err := PlaceOptions{Root: root}.withDefaults()
	must(t, err)
	p, err := newPlan(t.Context(), w, l, o)
	must(t, err)
	if p.Changed() != 0 || len(w.opened) > maxOpen {
		t.Errorf("%d changed, %d descriptors open", p.Changed(), len(w.opened))
	}
	w.Close()
}

func TestARootWhoseParentIsAbsent(t *testing.T) {
	_, err := Place(t.Context(), builtin(t, "node"), PlaceOptions{Root: t.TempDir() + "/no/root"})
	var hint interface{ Hint() string }
	var c *Conflict
	if !errors.As(err, &c) || c.Got != "nothing" || !errors.As(err, &hint) {
		t.Errorf("Place: %v: expected that the parent is absent, with a hint", err)
	}
}

// TestMain lets the test binary be the program that is killed below.
func TestMain(m *testing.M) {
	root := os.Getenv("SEEDBED_TEST_PLACE")
	if root == "" {
		m.Run()
		return
	}
	l, err := Builtin(os.Getenv("SEEDBED_TEST_LAYOUT"))
	if err == nil {
		_, err = Place(context.Background(), l, PlaceOptions{Root: root, WaitLock: time.Minute})
	}
	if err != nil {
		panic(err)
	}
}

// TestKilledAtAnyMoment kills 200 placing processes, each at a random moment of its life, and lets none end by itself.
// There is the old manifest or the new one each time, whole, and one more run converges.
func TestKilledAtAnyMoment(t *testing.T) {
	root := t.TempDir()
	self, err := os.Executable()
	must(t, err)
	run := func(layout string) *exec.Cmd {
		c := exec.Command(self)
		c.Env = append(os.Environ(), "SEEDBED_TEST_PLACE="+root, "SEEDBED_TEST_LAYOUT="+layout)
		must(t, c.Start())
		return c
	}
	start := time.Now()
	must(t, run("node").Wait())
	life := time.Since(start)
	old, err := ReadManifest(DefaultManifest(root))
	must(t, err)
	kills, replaced := 200, 0
	if testing.Short() {
		kills = 20
	}
	for killed, attempts := 0, 0; killed < kills; attempts++ {
		if attempts > 10*kills {
			t.Fatalf("%d of %d processes were killed before their end", killed, attempts)
		}
		name := BuiltinNames()[attempts%2]
		c := run(name)
		time.Sleep(rand.N(life)) // the moment
		must(t, c.Process.Kill())
		if c.Wait() != nil {
			killed++
			life += life / 50
		} else {
			life -= life / 20
		}
		m, err := ReadManifest(DefaultManifest(root))
		if err != nil || m.Generation != old.Generation && m.Layout != name {
			t.Fatalf("killed while placing %s: %v, %+v: expected the old manifest or the new one", name, err, m)
		}
		if m.Generation != old.Generation {
			replaced++
		}
		old = m
		if attempts%3 == 0 {
			must(t, os.RemoveAll(root+"/data"))
			must(t, os.RemoveAll(root+"/var"))
		}
	}
	t.Logf("in about %v of life, the manifest was replaced %d times", life, replaced)
	place(t, builtin(t, "node"), root)
	if r := place(t, builtin(t, "node"), root); r.Plan.Changed() != 0 || r.Written {
		t.Errorf("does not converge: %d changed", r.Plan.Changed())
	}
	if debris, err := filepath.Glob(root + "/run/seedbed/" + tempPrefix + "*"); err != nil || len(debris) > 0 {
		t.Errorf("debris: %v, %v", debris, err)
	}
}
