package storage

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxAccounts bounds passwd and group, in bytes.
const maxAccounts = 16 << 20

// names gives nodes that declare their owner by name its numbers in the target root's passwd and group: those of the
// host would be another system's. A name that is not there is refused before anything is changed.
func (pl *planner) names() {
	if pl.caller == nil {
		return // a manifest has the numbers
	}
	users, groups := accounts{walk: pl.walk, file: "/etc/passwd", fields: 7}, accounts{walk: pl.walk, file: "/etc/group", fields: 4}
	for i := range pl.placed {
		n := &pl.placed[i]
		if n.User != "" {
			n.UID = pl.number(&users, n, n.User)
		}
		if n.Group != "" {
			n.GID = pl.number(&groups, n, n.Group)
		}
	}
}

func (pl *planner) number(a *accounts, n *Node, name string) int {
	id, err := a.find(name)
	if err != nil {
		pl.refuse(&advised{
			fmt.Errorf("place node %s: %w", n.ID, err),
			fmt.Sprintf("nothing was changed; add %q to %s, or give its number in the layout", name, a.host()),
		})
	}
	return id
}

// accounts is passwd(5) or group(5) of the root, read once it is needed.
type accounts struct {
	walk   *walker
	file   string
	fields int
	ids    map[string]int
	err    error
}

func (a *accounts) host() string { return strings.TrimSuffix(a.walk.hostPath, "/") + a.file }

func (a *accounts) find(name string) (int, error) {
	if a.ids == nil && a.err == nil {
		a.ids, a.err = a.read()
	}
	id, ok := a.ids[name]
	if a.err == nil && !ok {
		return 0, fmt.Errorf("find %q in %q: there is no such name", name, a.host())
	}
	return id, a.err
}

func (a *accounts) read() (map[string]int, error) {
	dir, name, err := a.walk.locate(a.file)
	if err != nil {
		return nil, err
	}
	if dir.absent {
		return nil, dir.fail("open", name, unix.ENOENT)
	}
	at, err := dir.open()
	if err != nil {
		return nil, err
	}
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, dir.fail("open", name, err)
	}
	f := os.NewFile(uintptr(fd), a.host())
	defer f.Close()
	ids, err := parseAccounts(io.LimitReader(f, maxAccounts), a.fields)
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", a.host(), err)
	}
	return ids, nil
}

// parseAccounts reads name:password:number:… with exactly that many fields to a line. Empty lines and comments are
// skipped; a line that is anything else is an error, because it is not known what it was to say.
func parseAccounts(r io.Reader, fields int) (map[string]int, error) {
	ids := map[string]int{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		if line == "" || line[0] == '#' {
			continue
		}
		f := strings.Split(line, ":")
		if len(f) != fields || badAccount(f[0]) {
			return nil, fmt.Errorf("line %d: found %.60q: expected %d fields, the first a name", n, line, fields)
		}
		id, err := strconv.ParseUint(f[2], 10, 32)
		if err != nil || id == math.MaxUint32 || f[2][0] == '+' {
			return nil, fmt.Errorf("line %d: %q has the number %q: expected one from 0 to %d", n, f[0], f[2], int64(math.MaxUint32)-1)
		}
		if other, twice := ids[f[0]]; twice && other != int(id) {
			return nil, fmt.Errorf("line %d: %q has the number %d, and %d above", n, f[0], id, other)
		}
		ids[f[0]] = int(id)
	}
	return ids, lines.Err()
}

// badAccount reports whether a text cannot be the name of a user or a group: useradd(8), with upper case and dots, which
// many sites have.
func badAccount(name string) bool {
	return name == "" || len(name) > 256 || name[0] == '-' || strings.Trim(name, "0123456789") == "" ||
		strings.Trim(strings.TrimSuffix(name, "$"), "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") != ""
}
