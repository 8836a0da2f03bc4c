package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// treeSize is how many nodes the storage rows place: one directory for each 100, FIFOs among the rest.
const treeSize = 10_000

// placement is a tree in the words of both programs, with a root for each.
type placement struct {
	dir         string
	layout      string // for seedbed
	config      string // for systemd-tmpfiles
	ours, peers string // roots
}

// storageRows place 10,000 nodes below an empty root, and again when nothing is to be done.
func (b *bench) storageRows() []row {
	const peer = "`systemd-tmpfiles --create --root`"
	return []row{
		{
			id: "storage-fresh", title: "10,000 nodes, fresh", baseline: peer, bar: 1.1,
			seedbed: contender{b.onTree(placement.clear), b.placeSeedbed},
			peer:    contender{b.onTree(placement.clear), b.placeTmpfiles},
		},
		{
			id: "storage-again", title: "10,000 nodes, nothing to do", baseline: peer, bar: 0.1,
			seedbed: contender{b.placed(b.placeSeedbed), b.placeSeedbed},
			peer:    contender{b.placed(b.placeTmpfiles), b.placeTmpfiles},
			after:   b.tracePlace,
		},
	}
}

func (b *bench) tree() placement {
	dir := filepath.Join(b.disk, "tree")
	return placement{dir, filepath.Join(dir, "layout.json"), filepath.Join(dir, "tree.conf"), filepath.Join(dir, "ours"), filepath.Join(dir, "peers")}
}

func (b *bench) onTree(do func(placement) error) func(context.Context) error {
	return func(context.Context) error { return do(b.tree()) }
}

// placed brings the tree into the state that the run leaves it in.
func (b *bench) placed(run func(context.Context) (sample, error)) func(context.Context) error {
	return func(ctx context.Context) error {
		if _, err := os.Stat(b.tree().layout); err != nil {
			if err := b.tree().clear(); err != nil {
				return err
			}
		}
		_, err := run(ctx)
		return err
	}
}

// clear makes both roots empty and writes what is to be placed.
func (p placement) clear() error {
	if err := os.RemoveAll(p.dir); err != nil {
		return err
	}
	for _, root := range []string{p.ours, p.peers} {
		if err := os.MkdirAll(root, 0o755); err != nil {
			return err
		}
	}
	return p.describe()
}

// node is a node of a layout.
type node struct {
	ID   string `json:"id"`
	Path string `json:"path"`
	Kind string `json:"kind"`
	Mode string `json:"mode"`
	UID  int    `json:"uid"`
	GID  int    `json:"gid"`
}

// nodes returns the tree: 100 directories with 89 directories and 10 FIFOs in each.
func nodes() []node {
	const width, fifos = 100, 10
	var all []node
	for i := range treeSize / width {
		parent := node{ID: fmt.Sprintf("n%02d", i), Path: fmt.Sprintf("/n%02d", i), Kind: "dir", Mode: "0755"}
		all = append(all, parent)
		for j := range width - 1 {
			child := node{ID: fmt.Sprintf("%s.c%02d", parent.ID, j), Path: fmt.Sprintf("%s/c%02d", parent.Path, j), Kind: "dir", Mode: "0750"}
			if j < fifos {
				child.Kind, child.Mode = "fifo", "0600"
			}
			all = append(all, child)
		}
	}
	return all
}

// describe writes the tree as a layout and as a file of tmpfiles.d(5).
func (p placement) describe() error {
	all := nodes()
	layout, err := json.Marshal(map[string]any{"schema": "seedbed.storage/v1", "layout": "bench", "nodes": all, "mounts": []string{}})
	if err != nil {
		return err
	}
	if err := os.WriteFile(p.layout, layout, 0o644); err != nil {
		return err
	}
	types := map[string]string{"dir": "d", "fifo": "p"}
	var config strings.Builder
	for _, n := range all {
		fmt.Fprintf(&config, "%s %s %s %d %d -\n", types[n.Kind], n.Path, n.Mode, n.UID, n.GID)
	}
	return os.WriteFile(p.config, []byte(config.String()), 0o644)
}

func (p placement) seedbed(program string) []string {
	return []string{program, "storage", "place", "-q", "--layout", p.layout, "--root", p.ours}
}

func (b *bench) placeSeedbed(ctx context.Context) (sample, error) {
	return measure(ctx, b.tree().seedbed(b.programs.seedbed))
}

func (b *bench) placeTmpfiles(ctx context.Context) (sample, error) {
	p := b.tree()
	return measure(ctx, []string{"systemd-tmpfiles", "--create", "--root=" + p.peers, p.config})
}

// writingCalls change a file system, as strace names them; open is among them for its flags.
const writingCalls = "write,pwrite64,writev,pwritev,pwritev2,copy_file_range,sendfile,splice," +
	"open,openat,openat2,creat,mkdir,mkdirat,mknod,mknodat,symlink,symlinkat,link,linkat,unlink,unlinkat,rmdir,rename,renameat,renameat2," +
	"chmod,fchmod,fchmodat,fchmodat2,chown,fchown,lchown,fchownat,utime,utimes,utimensat,futimesat,truncate,ftruncate,fallocate," +
	"setxattr,lsetxattr,fsetxattr,removexattr,lremovexattr,fremovexattr,mount,umount2,move_mount,fsmount,fsync,fdatasync,sync,syncfs"

// tracePlace shows that a run with nothing to do writes nothing.
func (b *bench) tracePlace(ctx context.Context, r *result) error {
	calls, err := b.strace(ctx, writingCalls, b.tree().seedbed(b.programs.seedbed))
	if err != nil {
		return err
	}
	for _, c := range calls {
		if c.writes() {
			r.Writes = append(r.Writes, c.line)
		}
	}
	r.Evidence = fmt.Sprintf("strace saw %d system calls that write", len(r.Writes))
	if len(r.Writes) > 0 {
		r.miss("%d system calls that write, the first: %s", len(r.Writes), r.Writes[0])
	}
	return nil
}

// writes reports whether a call changes a file system. Writing to what is no file (a terminal, a pipe, the runtime's
// eventfd) or to /dev and /proc does not, and opening does with a flag that says so.
func (c call) writes() bool {
	switch {
	case strings.HasPrefix(c.name, "open"):
		return strings.Contains(c.line, "O_CREAT") || strings.Contains(c.line, "O_WRONLY") || strings.Contains(c.line, "O_RDWR") && !strings.Contains(c.line, "/dev/")
	case strings.HasPrefix(c.name, "write"), strings.HasPrefix(c.name, "pwrite"):
		return strings.HasPrefix(c.target, "/") && !strings.HasPrefix(c.target, "/dev/") && !strings.HasPrefix(c.target, "/proc/")
	}
	return true
}
