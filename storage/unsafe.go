package storage

import (
	"fmt"
)

// UnsafePath is a way through the tree on which somebody else than root and the caller decides where it leads. Nothing
// was changed when it is reported.
type UnsafePath struct {
	Path   string // on the host
	Fact   string
	Advice string
}

// Error says what is unsafe about the path.
func (u *UnsafePath) Error() string { return fmt.Sprintf("place %q: unsafe path: %s", u.Path, u.Fact) }

// Hint is the next step.
func (u *UnsafePath) Hint() string { return "nothing was changed; " + u.Advice }

// trusts reports whether a user cannot be kept from doing what the caller does anyway: root, and the caller itself.
func (o *owner) trusts(uid int) bool { return uid == 0 || uid == o.uid }

// othersWrite reports whether others than root, the caller and their groups can write what was found.
func (o *owner) othersWrite(f found) bool {
	return f.mode&0o002 != 0 || f.mode&0o020 != 0 && f.gid != 0 && f.gid != o.gid
}

// exposed returns the nearest directory, the folder itself or one above it, in which others can put things: one that
// is theirs, or that they can write. The root's owner does not count: who names a root vouches for it.
func (f *folder) exposed() *folder {
	o := f.walk.caller
	if o == nil {
		return nil
	}
	for at := f; at != nil && at.path != ".."; at = at.up {
		if at.absent {
			continue
		}
		if o.othersWrite(at.found) || at != f.walk.root && !o.trusts(at.found.uid) {
			return at
		}
	}
	return nil
}

// mayFollow refuses a link that others could have put there. A sticky directory is one of those: whoever made a link in
// it first owns it.
func (f *folder) mayFollow(name string) error {
	at := f.exposed()
	if at == nil {
		return nil
	}
	return &UnsafePath{
		Path: f.hostOf(name),
		Fact: fmt.Sprintf("found a symbolic link below %q (owner %s, mode %s), which others can write: expected a directory",
			at.host(), at.found.owner(), at.found.mode),
		Advice: fmt.Sprintf("put a directory in the link's place, or take others' right to write %q away", at.host()),
	}
}

// mayStep refuses to go from a directory that a user owns to one that another owns: the first could put any directory
// of the second's there.
func (f *folder) mayStep(name string, uid int) error {
	o := f.walk.caller
	if o == nil || f == f.walk.root || o.trusts(f.found.uid) || f.found.uid == uid {
		return nil
	}
	return f.unsafeStep(name, f.found.uid, uid, "is of")
}

func (f *folder) unsafeStep(name string, from, to int, verb string) error {
	return &UnsafePath{
		Path:   f.hostOf(name),
		Fact:   fmt.Sprintf("%q is of user %d, what is below it at %q %s user %d: expected one owner", f.host(), from, f.hostOf(name), verb, to),
		Advice: fmt.Sprintf("give both one owner, or %q to root", f.host()),
	}
}

// stepsToOwner refuses a layout that leads from a user's directory to another's, before the first of them is made.
func (pl *planner) stepsToOwner(n *Node, f *folder) error {
	up := f.up
	if pl.caller == nil || up == nil || up == pl.walk.root || up.path == ".." || n.Host {
		return nil
	}
	uid := up.found.uid
	if up.node != nil {
		uid = up.node.UID
	}
	if up.absent && up.node == nil || pl.caller.trusts(uid) || uid == n.UID {
		return nil
	}
	return up.unsafeStep(f.name, uid, n.UID, "is to be of")
}

// mayChange refuses to change a node that has other names where others could have made them: hard links need no right
// to the file itself.
func (s *Step) mayChange() error {
	if s.found.kind == KindDir || s.found.links <= 1 {
		return nil
	}
	at := s.dir.exposed()
	if at == nil {
		return nil
	}
	return &UnsafePath{
		Path: s.dir.hostOf(s.name),
		Fact: fmt.Sprintf("it has %d hard links below %q (owner %s, mode %s), which others can write: expected 1",
			s.found.links, at.host(), at.found.owner(), at.found.mode),
		Advice: "find its other names (find -samefile), and remove those that are not yours",
	}
}
