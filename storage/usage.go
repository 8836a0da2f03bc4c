package storage

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Usage returns, by the ids of the nodes, the space in bytes that what is at each node and below it takes, as du(1)
// counts it: blocks, each file once. Nodes of the host have none of their own, and other file systems count only where a
// node stands. What cannot be read is left out, and the errors are joined.
func Usage(ctx context.Context, m *Manifest) (map[string]int64, error) {
	u := &usage{ctx: ctx, nodes: map[string]*Node{}, seen: map[identity]bool{}, bytes: map[string]int64{}}
	for i := range m.Nodes {
		u.nodes[filepath.Join(m.Root, m.Nodes[i].Path)] = &m.Nodes[i]
	}
	for full, n := range u.nodes {
		if !n.Host && !u.within(full) {
			u.sum(full, nil)
		}
	}
	return u.bytes, errors.Join(u.errs...)
}

type usage struct {
	ctx   context.Context
	nodes map[string]*Node  // by path on the host
	seen  map[identity]bool // files with several names
	bytes map[string]int64
	errs  []error
}

// within reports whether a path is counted with a node above it.
func (u *usage) within(full string) bool {
	for p := path.Dir(full); ; p = path.Dir(p) {
		if n := u.nodes[p]; n != nil {
			return !n.Host
		}
		if p == "/" {
			return false
		}
	}
}

// sum counts a path and what is below it. Above is the directory that it is in, nil for the first.
func (u *usage) sum(full string, above *unix.Stat_t) int64 {
	var st unix.Stat_t
	err := unix.Lstat(full, &st)
	n := u.nodes[full]
	switch got := newFound(&st); {
	case err == unix.ENOENT:
		return 0
	case err != nil:
		u.errs = append(u.errs, &fs.PathError{Op: "stat", Path: full, Err: err})
		return 0
	case above != nil && above.Dev != st.Dev && n == nil, u.seen[got.identity]:
		return 0
	case got.kind != KindDir && got.links > 1:
		u.seen[got.identity] = true
	}
	bytes := st.Blocks * 512 // stat(2)
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		bytes += u.below(full, &st)
	}
	if n != nil {
		u.bytes[n.ID] = bytes
	}
	return bytes
}

// below counts what is in a directory.
func (u *usage) below(full string, st *unix.Stat_t) (bytes int64) {
	err := u.ctx.Err()
	var entries []fs.DirEntry
	if err == nil {
		entries, err = os.ReadDir(full)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		u.errs = append(u.errs, err)
	}
	for _, e := range entries {
		bytes += u.sum(filepath.Join(full, e.Name()), st)
	}
	return bytes
}
