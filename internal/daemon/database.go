package daemon

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// database is containerd's metadata below its root. bolt locks it with flock(2)
// for as long as it is open.
const database = "io.containerd.metadata.v1.bolt/meta.db"

// checkDatabase returns an *InUse if another process has the database of root
// open: a second containerd would wait for it without a word.
func checkDatabase(root string) error {
	path := filepath.Join(root, database)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return &InUse{Path: path, PID: lockOwner(f)}
	}
	if err != nil {
		return fmt.Errorf("lock %q: %w", path, err)
	}
	return nil // closing f lets go of the lock
}

// lockOwner returns the process that holds a flock on f by /proc/locks
// (proc_locks(5)), 0 if it is not told.
func lockOwner(f *os.File) int {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return 0
	}
	locks, err := os.Open("/proc/locks")
	if err != nil {
		return 0
	}
	defer locks.Close()
	// 1: FLOCK  ADVISORY  WRITE 1234 fe:01:5678 0 EOF
	inode := ":" + strconv.FormatUint(st.Ino, 10)
	for lines := bufio.NewScanner(locks); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 || fields[1] != "FLOCK" || !strings.HasSuffix(fields[5], inode) {
			continue
		}
		if pid, err := strconv.Atoi(fields[4]); err == nil && pid > 0 {
			return pid
		}
	}
	return 0
}
