package storage

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// mounts looks at every mount point of the layout, the outer ones first, and records its state. With mount policies
// that apply, what is not as declared is refused, or of a preferred mount warned about, and what is to be made is
// prepared.
func (pl *planner) mounts() {
	pl.mountState = map[string]string{}
	pl.blocked = map[string]bool{}
	pl.placedMounts = slices.Clone(pl.layout.Mounts)
	order := make([]*Mount, len(pl.placedMounts))
	for i := range order {
		order[i] = &pl.placedMounts[i]
	}
	slices.SortFunc(order, func(a, b *Mount) int { return comparePaths(a.Path, b.Path) })
	for _, m := range order {
		m.State = MountIgnored
		if pl.applyMounts {
			m.State = pl.mountPoint(m)
		}
		pl.mountState[m.ID] = m.State
	}
}

// mountPoint returns the state of one mount point.
func (pl *planner) mountPoint(m *Mount) string {
	dir, name, err := pl.walk.locate(m.Path)
	if err != nil {
		return MountAbsent // the node itself reports it
	}
	f, err := pl.walk.enter(dir, name, 0)
	if err != nil {
		return MountAbsent
	}
	got, err := f.mounted()
	switch {
	case err != nil:
		pl.refuse(err)
		return MountAbsent
	case got != nil:
		pl.compareMount(m, f, got)
		return MountMounted
	case pl.caller == nil: // only looking: Check reports a lost mount
	case m.Policy == PolicyMake:
		return pl.prepareMount(m, f)
	case m.Policy == PolicyRequire:
		pl.badMount(m, f, difference{"no mount point", "mount it (see mount(8), or the unit that should have), or place with --mounts=ignore for a try-out"})
		pl.blocked[m.ID] = true
	}
	return MountAbsent
}

// mounted returns what is mounted at the directory, or nil when it is no mount point.
func (f *folder) mounted() (*mounted, error) {
	if f.absent {
		return nil, nil
	}
	fd, err := f.open()
	if err != nil {
		return nil, err
	}
	r, err := mountOf(fd, "")
	if err != nil {
		return nil, f.fail("statx", "", err)
	}
	if !r.isRoot {
		return nil, nil
	}
	m, err := r.info()
	if err != nil {
		return nil, &advised{f.fail("look at mount", "", err), "run seedbed in the mount namespace that it is in: nsenter --mount"}
	}
	return m, nil
}

// compareMount holds what is mounted against the declaration.
func (pl *planner) compareMount(m *Mount, f *folder, got *mounted) {
	fd, err := f.open()
	if err != nil {
		pl.refuse(err)
		return
	}
	for _, d := range m.differences(got, fd) {
		switch {
		case pl.caller == nil:
			pl.mountDrift = append(pl.mountDrift, Drift{m.ID, f.host(), KindDir, m.wanted(), d.got})
		case m.Policy == PolicyPrefer:
			pl.warn("mount %s: found %s at %q: expected %s (policy %s)", m.ID, d.got, f.host(), m.wanted(), m.Policy)
		default:
			pl.badMount(m, f, d)
		}
	}
	if below := got.below(); below != nil && pl.caller != nil {
		pl.warn("mount %s: at %q %s hides %s, which is mounted at the same place", m.ID, f.host(), got, below)
	}
}

// badMount refuses to place on what is there, or is not.
func (pl *planner) badMount(m *Mount, f *folder, d difference) {
	b := &BadMount{ID: m.ID, Path: f.host(), Policy: m.Policy, Want: m.wanted(), Got: d.got, Advice: d.advice}
	pl.refuse(b)
	pl.add(Step{Action: ActionConflict, ID: m.ID, Path: f.path, Kind: KindDir, From: b.Got, To: b.Want})
}

// prepareMount puts the root of a file system that is yet to be made in the place of its mount point. Everything below
// is planned as in an empty directory.
func (pl *planner) prepareMount(m *Mount, f *folder) string {
	g, err := newMounting(*m, f)
	if err == nil {
		err = f.mayMount()
	}
	if err != nil {
		pl.refuse(m.refused(f, err))
		pl.blocked[m.ID] = true
		return MountAbsent
	}
	f.become(g)
	return MountMounted
}

// become makes the folder, which others may already point to, the root of a file system that is yet to be made. What
// it was is the mount point from now on.
func (f *folder) become(g *mounting) {
	point := *f
	point.inside = nil
	if i := slices.Index(f.walk.opened, f); i >= 0 {
		f.walk.opened[i] = &point
	}
	g.point = &point
	*f = folder{walk: f.walk, up: f.up, name: f.name, path: f.path, fd: -1, absent: true, mount: g}
}

// refused is the kernel's refusal of a mount, with the next step.
func (m *Mount) refused(f *folder, err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return &advised{err, "nothing was changed; mounting needs root (CAP_SYS_ADMIN): run it as root, or place with --mounts=ignore"}
	case errors.Is(err, unix.ENOSYS):
		return &advised{err, "nothing was changed; Linux 5.2 or younger is needed: mount it yourself, or place with --mounts=ignore"}
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENODEV):
		return &BadMount{
			ID: m.ID, Path: f.host(), Policy: m.Policy, Want: m.wanted(),
			Got: "that the kernel does not take it: " + err.Error(), Advice: "mend the type or the options of the mount in the layout",
		}
	}
	return err
}

// mayMount checks that the directory can be a mount point: it is no root, and this process sees the mount that it is
// on.
func (f *folder) mayMount() error {
	if f.up == nil || f.up.path == ".." {
		return f.fail("mount on the root", "", unix.EBUSY)
	}
	at := f
	for at.absent {
		at = at.up
		if at.mount != nil {
			return nil // on a mount that will be made
		}
	}
	fd, err := at.open()
	if err != nil {
		return err
	}
	r, err := mountOf(fd, "")
	if err == nil {
		_, err = r.info()
	}
	if err != nil {
		return at.fail("look at mount", "", err)
	}
	return nil
}

// mountStep plans the mount whose root the folder is, and its mount point when that is absent.
func (pl *planner) mountStep(f *folder) {
	if f.step > 0 {
		return
	}
	i := slices.IndexFunc(pl.placed, func(n Node) bool { return n.ID == f.mount.ID })
	n := pl.placed[i]
	pl.own(&n)
	point, from := f.mount.point, "an empty directory"
	if point.absent {
		pl.parents(point.up)
		pl.make(Step{ID: n.ID, Path: f.path, Kind: KindDir, want: &n, dir: point.up, name: point.name, self: point})
	} else if point.empty() != nil {
		from = "a directory with entries, which will be hidden"
	}
	words := append([]string{f.mount.FSType}, superSettings(f.mount.Mount)...)
	for _, o := range f.mount.Options {
		if !slices.Contains(words, o) {
			words = append(words, o)
		}
	}
	pl.add(Step{
		Action: ActionMount, ID: n.ID, Path: f.path, Kind: KindDir, From: from,
		To:   strings.Join(words, " ") + " " + n.Mode.String() + " " + found{uid: n.UID, gid: n.GID}.owner(),
		want: &n, dir: f.up, name: f.name, self: f,
	})
	f.step = len(pl.plan.Steps)
}

// movedMounts gives each mount the path at which its node was found, links resolved.
func (pl *planner) movedMounts() {
	for i := range pl.placedMounts {
		m := &pl.placedMounts[i]
		node := slices.IndexFunc(pl.placed, func(n Node) bool { return n.ID == m.ID })
		m.Path = pl.placed[node].Path
	}
}

// lostMounts are the mounts that the manifest has and that are not there, or not as they were.
func (pl *planner) lostMounts(m *Manifest) []Drift {
	drifts := []Drift{}
	for i, now := range pl.placedMounts {
		if m.Mounts[i].State == MountMounted && now.State != MountMounted {
			drifts = append(drifts, Drift{now.ID, path.Join(m.Root, now.Path), KindDir, now.wanted(), "no mount point"})
		}
	}
	return append(drifts, pl.mountDrift...)
}
