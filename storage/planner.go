package storage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"golang.org/x/sys/unix"
)

type owner struct{ uid, gid int }

// planner builds a plan: the one engine behind NewPlan, Place and Check.
type planner struct {
	walk        *walker
	layout      *Layout
	digest      string // of the layout
	applyMounts bool
	caller      *owner // whom a declared owner of 0 stands for; nil takes owners as they are
	plan        *Plan
	refusals    []error
	refused     map[error]bool
	checked     map[*folder]bool // directories known to be writable, or reported

	placed       []Node // the layout's nodes as they will be
	placedMounts []Mount
	mountState   map[string]string
	blocked      map[string]bool // mounts without which nothing can be said of their nodes
	mountDrift   []Drift         // mounts that are not as declared
}

func newPlanner(w *walker, l *Layout, applyMounts bool) *planner {
	return &planner{
		walk: w, layout: l, applyMounts: applyMounts,
		plan:    &Plan{Root: w.hostPath, Steps: make([]Step, 0, len(l.Nodes))},
		refused: map[error]bool{},
		checked: map[*folder]bool{},
		placed:  slices.Clone(l.Nodes),
	}
}

// nodes plans every node, parents first.
func (pl *planner) nodes(ctx context.Context) error {
	pl.names()
	pl.mounts()
	order := make([]*Node, len(pl.placed))
	for i := range order {
		order[i] = &pl.placed[i]
	}
	slices.SortFunc(order, func(a, b *Node) int { return comparePaths(a.Path, b.Path) })
	if order[0].Path != "/" {
		pl.parents(pl.walk.root)
	}
	ahead := pl.walk.sendScout(order)
	defer ahead.recall()
	for i, n := range order {
		if err := ctx.Err(); err != nil {
			return err
		}
		pl.walk.ahead = ahead.report(i)
		pl.node(n)
	}
	pl.walk.ahead = nil
	pl.movedMounts()
	return nil
}

// comparePaths orders paths so that what is below a directory follows it at once: a slash sorts before anything else.
func comparePaths(a, b string) int {
	for i := range min(len(a), len(b)) {
		switch {
		case a[i] == b[i]:
		case a[i] == '/':
			return -1
		case b[i] == '/':
			return 1
		default:
			return cmp.Compare(a[i], b[i])
		}
	}
	return cmp.Compare(len(a), len(b))
}

// refuse records why the plan cannot be done, once.
func (pl *planner) refuse(err error) bool {
	if pl.refused[err] {
		return false
	}
	pl.refused[err] = true
	pl.refusals = append(pl.refusals, err)
	return true
}

func (pl *planner) warn(format string, args ...any) {
	pl.plan.Warnings = append(pl.plan.Warnings, fmt.Sprintf(format, args...))
}

func (pl *planner) add(s Step) *Step {
	pl.plan.Steps = append(pl.plan.Steps, s)
	return &pl.plan.Steps[len(pl.plan.Steps)-1]
}

// node plans one node and records in it what the manifest will say.
func (pl *planner) node(n *Node) {
	n.State = StateAbsent
	pl.own(n)
	if pl.blocked[n.Mount] {
		return
	}
	dir, name, err := pl.walk.locate(n.Path)
	var s Step
	if err == nil {
		s, err = pl.see(n, dir, name)
	}
	if err != nil {
		pl.conflict(n, err)
		return
	}
	if s.self != nil {
		n.Path = s.self.path
	} else if full := dir.pathOf(name); full != n.Path {
		n.Path = full
	}
	s.Path = n.Path
	pl.socketLength(n)
	pl.settle(n, s)
}

// own gives the node the owner that it will really have.
func (pl *planner) own(n *Node) {
	if pl.caller == nil || pl.caller.uid == 0 {
		return
	}
	if n.UID == 0 {
		n.UID = pl.caller.uid
	}
	if n.GID == 0 {
		n.GID = pl.caller.gid
	}
}

// conflict records that something is in the way of a node, or of its parent: each thing once.
func (pl *planner) conflict(n *Node, err error) {
	if !pl.refuse(err) {
		return
	}
	if c := (*Conflict)(nil); errors.As(err, &c) {
		pl.add(Step{Action: ActionConflict, ID: n.ID, Path: n.Path, Kind: n.Kind, From: c.Got, To: c.Want})
	}
}

// see looks at what stands at the node's place. A directory is entered, so links to it are followed inside the root.
func (pl *planner) see(n *Node, dir *folder, name string) (Step, error) {
	s := Step{ID: n.ID, Kind: n.Kind, want: n, dir: dir, name: name}
	if n.Kind != KindDir {
		got, err := dir.look(name)
		s.found = got
		return s, err
	}
	f, err := pl.walk.enter(dir, name, 0)
	if err != nil {
		return s, err
	}
	s.self, s.dir, s.name, s.found = f, f.up, f.name, f.found
	if f.node != nil {
		return s, &Conflict{
			Path: f.host(), Want: "a directory of its own for node " + n.ID,
			Got: "the directory of node " + f.node.ID,
		}
	}
	f.node = n
	return s, pl.stepsToOwner(n, f)
}

// settle turns what was seen into steps.
func (pl *planner) settle(n *Node, s Step) {
	switch {
	case s.self != nil && s.self.mount != nil:
		n.State = StatePresent
		pl.mountStep(s.self)
	case s.self != nil && s.self.step > 0:
		pl.adopt(n, s)
	case s.found.kind == "":
		pl.missing(n, s)
	case n.Host && s.found.kind.known() && (n.Kind != KindDir || s.found.kind == KindDir):
		pl.accept(n, s)
	case s.found.kind != n.Kind:
		c := &Conflict{Path: s.dir.hostOf(s.name), Want: wanted(n), Got: describe(s.found.kind)}
		pl.conflict(n, c)
	case n.Kind == KindSymlink:
		pl.link(n, s)
	default:
		pl.differences(n, s)
	}
}

// accept keeps what is there of a node of the host, and lets the manifest say what it is.
func (pl *planner) accept(n *Node, s Step) {
	n.Mode, n.UID, n.GID = s.found.mode, s.found.uid, s.found.gid
	n.Kind, n.Target = s.found.kind, ""
	if n.Kind == KindSymlink {
		target, err := s.dir.readlink(s.name)
		if err != nil {
			pl.refuse(err)
		}
		n.Target = target
	}
	s.Kind = n.Kind
	pl.keep(n, s)
}

// wanted describes the node for a conflict.
func wanted(n *Node) string {
	if n.Kind == KindSymlink {
		return "symlink to " + n.Target
	}
	return string(n.Kind)
}

// missing plans a node that is not there.
func (pl *planner) missing(n *Node, s Step) {
	waits := pl.waitsForMount(n)
	switch {
	case n.When == WhenImage && pl.walk.hostPath == "/":
		return // absent, and nobody is expected to make it
	case n.Kind.made() && !waits:
		n.State = StatePresent
		pl.parents(s.dir)
		pl.make(s)
		return
	case !waits:
		pl.parents(s.dir)
	}
	n.State = StateReserved
	s.Action = ActionReserve
	pl.add(s)
}

// waitsForMount reports whether the node stands on a preferred file system that is not mounted and is not the host's
// own business (the EFI system partition): its nodes are only reserved then.
func (pl *planner) waitsForMount(n *Node) bool {
	if n.Mount == "" || n.ID == n.Mount || pl.mountState[n.Mount] != MountAbsent {
		return false
	}
	point := slices.IndexFunc(pl.layout.Nodes, func(o Node) bool { return o.ID == n.Mount })
	mount := slices.IndexFunc(pl.layout.Mounts, func(m Mount) bool { return m.ID == n.Mount })
	return pl.layout.Mounts[mount].Policy == PolicyPrefer && !pl.layout.Nodes[point].Host
}

// make adds the step that makes a node, and checks that its directory can be written.
func (pl *planner) make(s Step) {
	s.Action, s.From, s.To = ActionMake, "absent", becomes(s.want)
	pl.writable(s.dir)
	pl.permitted(&s)
	pl.add(s)
	if s.self != nil {
		s.self.step = len(pl.plan.Steps)
	}
}

// becomes describes what a make step makes.
func becomes(n *Node) string {
	if n.Kind == KindSymlink {
		return "symlink to " + n.Target
	}
	return fmt.Sprintf("%s %s %d:%d", n.Kind, n.Mode, n.UID, n.GID)
}

// parents plans the directories above a node that neither are there nor are declared: they are made 0755 and owned by
// root (or the caller, when it is not root).
func (pl *planner) parents(f *folder) {
	if f == nil || !f.absent || f.step > 0 {
		return
	}
	if f.mount != nil {
		pl.mountStep(f)
		return
	}
	pl.parents(f.up)
	n := Node{Path: f.path, Kind: KindDir, Mode: 0o755}
	pl.own(&n)
	pl.make(Step{Path: f.path, Kind: KindDir, want: &n, dir: f.up, name: f.name, self: f})
}

// adopt gives a directory that is to be made as an undeclared parent its declared mode and owner. It comes to that
// when a link leads to a place that is declared later.
func (pl *planner) adopt(n *Node, s Step) {
	n.State = StatePresent
	made := &pl.plan.Steps[s.self.step-1]
	made.ID, made.want = n.ID, s.want
	made.To = becomes(s.want)
	pl.permitted(made)
}

func (pl *planner) keep(n *Node, s Step) {
	n.State = StatePresent
	s.Action = ActionKeep
	pl.add(s)
}

// link plans a symlink where one is.
func (pl *planner) link(n *Node, s Step) {
	target, err := s.dir.readlink(s.name)
	switch {
	case err != nil:
		pl.refuse(err)
	case target != n.Target:
		pl.conflict(n, &Conflict{Path: s.dir.hostOf(s.name), Want: wanted(n), Got: "symlink to " + target})
	default:
		pl.keep(n, s)
	}
}

// differences plans the mode and the owner of a node that is there. Of a file only a mode that is looser than declared
// is changed, and of a socket nothing: they belong to the program that made them.
func (pl *planner) differences(n *Node, s Step) {
	n.State = StatePresent
	mode := pl.wantedMode(n, s)
	chmod := mode != s.found.mode
	chown := n.Kind.made() && (s.found.uid != n.UID || s.found.gid != n.GID)
	if !chmod && !chown || s.inside().modeless() {
		pl.keep(n, s)
		return
	}
	if err := s.mayChange(); err != nil && n.Kind != KindFile {
		pl.refuse(err)
		return
	}
	if chown {
		c := s
		c.Action, c.From, c.To = ActionChown, s.found.owner(), fmt.Sprintf("%d:%d", n.UID, n.GID)
		pl.change(c)
	}
	if chmod {
		c := s
		want := *n
		want.Mode = mode
		c.want = &want
		c.Action, c.From, c.To = ActionChmod, s.found.mode.String(), mode.String()
		pl.change(c)
	}
}

func (pl *planner) wantedMode(n *Node, s Step) Mode {
	switch {
	case n.Tighten:
		return s.found.mode & n.Mode
	case n.Kind.made():
		return n.Mode
	case n.Kind == KindFile && s.found.mode&^n.Mode != 0 && s.found.links > 1:
		pl.warn("%s: file %q has mode %s and %d hard links: expected at most %s; left alone, because its other names are not known",
			n.ID, s.dir.hostOf(s.name), s.found.mode, s.found.links, n.Mode)
	case n.Kind == KindFile:
		return s.found.mode & n.Mode
	}
	return s.found.mode
}

// change adds a step that changes what is there.
func (pl *planner) change(s Step) {
	pl.permitted(&s)
	pl.add(s)
}

// permitted refuses at once what the caller has no right to do: without being root it may change only its own nodes,
// and give none away.
func (pl *planner) permitted(s *Step) {
	if pl.caller == nil || pl.caller.uid == 0 {
		return
	}
	foreign := s.Action != ActionMake && s.found.uid != pl.caller.uid
	if foreign || s.want.UID != pl.caller.uid {
		op := "chown"
		if s.Action == ActionChmod {
			op = "chmod"
		}
		pl.refuse(&advised{s.fail(op, unix.EPERM), fmt.Sprintf(
			"nothing was changed; the owner is %s, is to be %d:%d, and this runs as user %d: run it as root, or with a --root of your own",
			ownerNow(s), s.want.UID, s.want.GID, pl.caller.uid)})
	}
}

// ownerNow is who owns what the step is about.
func ownerNow(s *Step) string {
	if s.Action == ActionMake {
		return "nobody yet"
	}
	return s.found.owner()
}

// writable refuses at once to make something in a directory that cannot be written: no permission, or a read-only file
// system. Directories that are yet to be made are.
func (pl *planner) writable(dir *folder) {
	if dir == nil || dir.absent || pl.checked[dir] || pl.caller == nil {
		return
	}
	pl.checked[dir] = true
	fd, err := dir.open()
	if err != nil {
		pl.refuse(err)
		return
	}
	err = unix.Faccessat2(fd, "", unix.W_OK|unix.X_OK, unix.AT_EMPTY_PATH|unix.AT_EACCESS)
	if err != nil && err != unix.ENOSYS {
		pl.refuse(&advised{dir.fail("write into", "", err), pl.unwritable(dir, err)})
	}
}

// unwritable is the advice about a directory that cannot be written.
func (pl *planner) unwritable(dir *folder, err error) string {
	if err == unix.EROFS {
		return "nothing was changed; the file system is read-only: remount it writable, or place under another --root"
	}
	return fmt.Sprintf("nothing was changed; the directory has owner %s and mode %s, and this runs as user %d",
		dir.found.owner(), dir.found.mode, pl.caller.uid)
}

// socketLength warns where the prefix of the root makes a socket's path longer than bind(2) takes.
func (pl *planner) socketLength(n *Node) {
	if n.Kind != KindSocket {
		return
	}
	if full := path.Join(pl.walk.hostPath, n.Path); len(full) > maxSocketPath {
		pl.warn("%s: socket path %q is %d bytes long under this root: at most %d can be bound; use a shorter root to run anything on this tree",
			n.ID, full, len(full), maxSocketPath)
	}
}
