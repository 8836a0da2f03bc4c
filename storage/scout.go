package storage

import (
	"path"
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// scoutFrom is how many nodes a layout has for which a scout is sent out.
const scoutFrom = 1000

// scout looks at nodes on another processor, from the last one on, while the planner comes from the first; where they
// meet each has half of the work. It goes by no link and decides nothing: the planner takes a sighting only if it was
// made in the very directory that it has walked to itself, and looks itself otherwise.
type scout struct {
	root      int // O_PATH
	paths     []string
	sightings []sighting
	from      atomic.Int64 // sightings are complete from here on
	at        atomic.Int64 // the node that the planner is at
	done      chan struct{}
}

// sighting is what stands at a name.
type sighting struct {
	known bool
	in    identity // of the directory
	name  string
	found found
}

// sendScout returns nil where it is not worth while.
func (w *walker) sendScout(order []*Node) *scout {
	if w.root.absent || len(order) < scoutFrom || runtime.GOMAXPROCS(0) < 2 {
		return nil
	}
	s := &scout{root: w.root.fd, paths: make([]string, len(order)), sightings: make([]sighting, len(order)), done: make(chan struct{})}
	for i, n := range order {
		s.paths[i] = n.Path
	}
	s.from.Store(int64(len(order)))
	go s.run()
	return s
}

func (s *scout) run() {
	defer close(s.done)
	var dir spot
	defer dir.leave()
	for i := len(s.paths) - 1; int64(i) > s.at.Load(); i-- {
		parent, name := path.Split(s.paths[i])
		if parent != dir.path {
			dir.leave()
			dir = s.reach(parent)
		}
		s.sightings[i] = dir.look(name)
		s.from.Store(int64(i))
	}
}

// spot is a directory that the scout is in; where it cannot get to, it sees nothing.
type spot struct {
	path string
	open bool
	fd   int // O_PATH
	identity
}

// reach opens a directory that is reached without links.
func (s *scout) reach(dir string) spot {
	fd, err := unix.Openat2(s.root, "."+dir, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return spot{path: dir}
	}
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		unix.Close(fd)
		return spot{path: dir}
	}
	return spot{dir, true, fd, newFound(&st).identity}
}

func (s *spot) leave() {
	if s.open {
		unix.Close(s.fd)
	}
}

func (s *spot) look(name string) sighting {
	if !s.open {
		return sighting{}
	}
	var st unix.Stat_t
	switch unix.Fstatat(s.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) {
	case nil:
		return sighting{known: true, in: s.identity, name: name, found: newFound(&st)}
	case unix.ENOENT:
		return sighting{known: true, in: s.identity, name: name}
	}
	return sighting{}
}

// report returns what was seen of the i-th node, which the planner is at now, or nil.
func (s *scout) report(i int) *sighting {
	if s == nil {
		return nil
	}
	s.at.Store(int64(i))
	if int64(i) < s.from.Load() || !s.sightings[i].known {
		return nil
	}
	return &s.sightings[i]
}

// recall ends the scout's work.
func (s *scout) recall() {
	if s != nil {
		s.at.Store(int64(len(s.paths)))
		<-s.done
	}
}
