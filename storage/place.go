package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// Result is what [Place] did.
type Result struct {
	Plan *Plan
	// Manifest is what is on disk now.
	Manifest *Manifest
	// Written says that the manifest was written; it is left alone when it would say the same.
	Written bool
}

// Place makes the tree what the layout says and writes the manifest last. It holds the root's lock meanwhile: another
// place on the same root gives [ErrLocked] after PlaceOptions.WaitLock.
//
// What is in the way is reported as by [NewPlan], and nothing is touched then; the result has the plan. When a step
// fails after all, what was done is taken back as far as possible and an [*Interrupted] is returned. A run that has
// nothing to do writes nothing, not even the manifest.
func Place(ctx context.Context, l *Layout, o PlaceOptions) (*Result, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := l.Validate(); err != nil {
		return nil, err
	}
	w, err := newWalker(o.Root)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	if w.root.absent {
		return placeNew(ctx, w, l, o)
	}
	unlock, err := w.lock(ctx, o.WaitLock)
	if err != nil {
		return nil, err
	}
	defer unlock()
	p, err := newPlan(ctx, w, l, o)
	if err != nil {
		return &Result{Plan: p}, err
	}
	return p.finish(ctx, &journal{}, p.Steps)
}

// placeNew places into a root that is yet to be made. The root itself is the lock, so it is made first, once the plan
// for it has no objection; then all is looked at again under the lock.
func placeNew(ctx context.Context, w *walker, l *Layout, o PlaceOptions) (*Result, error) {
	p, err := newPlan(ctx, w, l, o)
	if err != nil {
		return &Result{Plan: p}, err
	}
	log, first := &journal{}, p.Steps[0]
	if err := log.do(&first); errors.As(err, new(*Conflict)) {
		return Place(ctx, l, o) // somebody else made it a moment earlier
	} else if err != nil {
		return &Result{Plan: p}, p.takeBack(log, false, err)
	}
	unlock, err := w.lock(ctx, o.WaitLock)
	if err != nil {
		return &Result{Plan: p}, err
	}
	defer unlock()
	again, err := newWalker(o.Root)
	if err != nil {
		return &Result{Plan: p}, p.takeBack(log, false, err)
	}
	defer again.Close()
	if p, err = newPlan(ctx, again, l, o); err != nil {
		log.undo()
		return &Result{Plan: p}, err
	}
	rest := slices.DeleteFunc(p.Steps, func(s Step) bool { return s.Path == "/" && !s.Changes() })
	p.Steps = append([]Step{first}, rest...)
	return p.finish(ctx, log, rest)
}

// finish does the steps, then writes the manifest. On an error everything in the journal is taken back.
func (p *Plan) finish(ctx context.Context, log *journal, steps []Step) (*Result, error) {
	r := &Result{Plan: p}
	err := log.run(ctx, steps)
	if err == nil {
		err = log.attach()
	}
	if err == nil && p.file.dir != nil {
		err = p.file.dir.sweep()
	}
	if err == nil && p.file.write {
		r.Written, err = p.file.dir.writeFile(p.file.name, p.file.data, manifestMode)
	}
	if err != nil {
		return r, p.takeBack(log, r.Written, err)
	}
	r.Manifest = p.manifest
	return r, nil
}

// takeBack undoes the journal. The manifest is withdrawn when it is already the new one, or when the tree cannot be
// brought back to what the old one says, so that whoever reads it fails closed.
func (p *Plan) takeBack(log *journal, written bool, cause error) error {
	e := &Interrupted{Err: cause, Done: len(log.done)}
	e.Undone = log.undo()
	if e.Undone == e.Done && !written || p.file.dir == nil || p.file.dir.absent {
		return e
	}
	fd, err := p.file.dir.open()
	if err == nil {
		err = unix.Unlinkat(fd, p.file.name, 0)
	}
	e.Withdrawn = err == nil
	return e
}

// journal remembers the steps that were done.
type journal struct{ done []Step }

func (j *journal) run(ctx context.Context, steps []Step) error {
	for i := range steps {
		if !steps[i].Changes() {
			continue
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("place %q: %w", steps[i].Path, err)
		}
		if err := j.do(&steps[i]); err != nil {
			return err
		}
	}
	return nil
}

// do does one step that changes something.
func (j *journal) do(s *Step) error {
	switch s.Action {
	case ActionMake:
		return j.make(s)
	case ActionMount:
		return j.mount(s)
	}
	fd, release, err := s.handle()
	if err != nil {
		return err
	}
	defer release()
	j.done = append(j.done, *s)
	if s.Action == ActionChown {
		return s.setOwner(fd)
	}
	return s.setMode(fd, s.want.Mode)
}

// make makes a node, then gives it its owner and its exact mode.
func (j *journal) make(s *Step) error {
	dir, err := s.dir.open()
	if err != nil {
		return err
	}
	if err := s.create(dir); err != nil && err != unix.EEXIST {
		return s.fail("make "+string(s.Kind), err)
	} else if err != nil {
		return s.overtaken()
	}
	made, err := s.dir.look(s.name)
	if err != nil {
		return err
	}
	s.found = made
	j.done = append(j.done, *s)
	if made.kind != s.Kind {
		return s.fail("make "+string(s.Kind), errReplaced)
	}
	if s.self != nil {
		s.self.absent, s.self.found = false, made
	}
	return s.finish(made)
}

// mount makes a file system that is mounted nowhere yet.
func (j *journal) mount(s *Step) error {
	fd, err := s.self.mount.build(s.want)
	if err != nil {
		return err
	}
	s.self.absent = false
	s.self.walk.hold(s.self, fd)
	j.done = append(j.done, *s)
	return s.self.stat(fd)
}

// attach moves what was mounted nowhere into place, the outer mounts first.
func (j *journal) attach() error {
	for i := range j.done {
		if s := &j.done[i]; s.Action == ActionMount {
			if err := s.self.attach(); err != nil {
				return err
			}
		}
	}
	return nil
}

// overtaken is the conflict with what somebody made here since the plan.
func (s *Step) overtaken() error {
	there, err := s.dir.look(s.name)
	if err != nil {
		return err
	}
	return &Conflict{Path: s.dir.hostOf(s.name), Want: "nothing, as a moment ago", Got: describe(there.kind)}
}

// create makes the node with the bits that the umask leaves; none of these calls follows a link or replaces anything.
func (s *Step) create(dir int) error {
	switch s.Kind {
	case KindDir:
		return unix.Mkdirat(dir, s.name, uint32(s.want.Mode))
	case KindFIFO:
		return unix.Mknodat(dir, s.name, unix.S_IFIFO|uint32(s.want.Mode), 0)
	case KindSymlink:
		return unix.Symlinkat(s.want.Target, dir, s.name)
	}
	return unix.EINVAL
}

// finish sets the owner before the mode, because chown(2) clears the set-id bits.
func (s *Step) finish(made found) error {
	owned := made.uid == s.want.UID && made.gid == s.want.GID
	exact := made.mode == s.want.Mode || s.Kind == KindSymlink
	if owned && exact || s.inside().modeless() {
		return nil
	}
	fd, release, err := s.handle()
	if err != nil {
		return err
	}
	defer release()
	if !owned {
		return s.setOwner(fd)
	}
	return s.setMode(fd, s.want.Mode)
}

// handle opens the node itself (O_PATH) and refuses one that is not what the plan saw.
func (s *Step) handle() (fd int, release func(), err error) {
	if s.self != nil {
		fd, err = s.self.open()
		return fd, func() {}, err
	}
	dir, err := s.dir.open()
	if err != nil {
		return -1, nil, err
	}
	fd, err = unix.Openat(dir, s.name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, nil, s.fail("open", err)
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil {
		if now := newFound(&st); now.identity != s.found.identity || now.links != s.found.links {
			err = errReplaced
		}
	}
	if err != nil {
		unix.Close(fd)
		return -1, nil, s.fail("open", err)
	}
	return fd, func() { unix.Close(fd) }, nil
}

// setOwner sets owner and mode of an O_PATH descriptor.
func (s *Step) setOwner(fd int) error {
	if err := unix.Fchownat(fd, "", s.want.UID, s.want.GID, unix.AT_EMPTY_PATH); err != nil {
		return s.fail("chown", err)
	}
	if s.Kind == KindSymlink {
		return nil
	}
	return s.setMode(fd, s.want.Mode)
}

// setMode is fchmodat2(2) on an O_PATH descriptor; kernels before 6.6 go through /proc.
func (s *Step) setMode(fd int, mode Mode) error {
	err := unix.Fchmodat(fd, "", uint32(mode), unix.AT_EMPTY_PATH)
	if err == unix.EOPNOTSUPP || err == unix.ENOSYS || err == unix.EPERM {
		err = unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), uint32(mode))
	}
	if err != nil {
		return s.fail("chmod", err)
	}
	return nil
}

// inside is a directory on the node's file system: the node itself, or the one that holds it.
func (s *Step) inside() *folder {
	if s.self != nil {
		return s.self
	}
	return s.dir
}

// fail is a *fs.PathError about the node.
func (s *Step) fail(op string, err error) error {
	if s.self != nil {
		return s.self.fail(op, "", err)
	}
	return s.dir.fail(op, s.name, err)
}

// undo takes the steps back, last first, and returns how many it could. Only what is still as this run left it is
// touched: a directory goes when it is empty.
func (j *journal) undo() int {
	undone := 0
	for i := len(j.done) - 1; i >= 0; i-- {
		if j.done[i].revert() == nil {
			undone++
		}
	}
	return undone
}

func (s *Step) revert() error {
	switch s.Action {
	case ActionMake:
		return s.remove()
	case ActionMount:
		return s.self.detach()
	}
	fd, release, err := s.handle()
	if err != nil {
		return err
	}
	defer release()
	if s.Action == ActionChown {
		s.want = &Node{UID: s.found.uid, GID: s.found.gid, Mode: s.found.mode}
		return s.setOwner(fd)
	}
	return s.setMode(fd, s.found.mode)
}

// remove takes away what this run made, if it is still that.
func (s *Step) remove() error {
	dir, err := s.dir.open()
	if err != nil {
		return err
	}
	got, err := s.dir.look(s.name)
	if err != nil {
		return err
	}
	if got.identity != s.found.identity {
		return s.fail("remove", errReplaced)
	}
	flags := 0
	if s.Kind == KindDir {
		flags = unix.AT_REMOVEDIR
		s.self.close()
		s.self.absent = true
	}
	if err := unix.Unlinkat(dir, s.name, flags); err != nil {
		return s.fail("remove", err)
	}
	return nil
}
