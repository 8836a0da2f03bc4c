package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Running describes the containerd of the tree: it answers at the address of o's configuration,
// has the database of its root, and was started by this program.
type Running struct {
	// PID is its process.
	PID     int
	Version string
}

// FindRunning returns the containerd that [Run] runs on the tree already, nil if none does. What it
// holds, its socket and its database, is no fault: the findings that [Preflight] has of that
// process are to be left out. One that has another root, or that somebody else started, such as a distribution's
// service, is in the way of a start.
func FindRunning(ctx context.Context, o Options) *Running {
	var socket, lock *InUse
	if !errors.As(checkSocket(o.Address), &socket) {
		return nil
	}
	c, err := loadConfig(o)
	if err != nil || !errors.As(checkDatabase(c.Root), &lock) || lock.PID != socket.PID || !isOurs(socket.PID) {
		return nil
	}
	version, err := version(ctx, o.Address)
	if err != nil {
		return nil
	}
	return &Running{PID: socket.PID, Version: version}
}

// Holds reports whether a finding is about what r holds.
func (r *Running) Holds(f Finding) bool {
	var inUse *InUse
	return r != nil && errors.As(f.Err, &inUse) && inUse.PID == r.PID
}

// isOurs reports whether a process is a child of this program, by its name: the file may be a newer one meanwhile.
func isOurs(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	// 12 (containerd) S 11 …: the name may hold anything, so from its last parenthesis on (proc_pid_stat(5)).
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 2 {
		return false
	}
	program := programName("self")
	return program != "" && program == programName(fields[1])
}

// programName returns the name of a process's program, "" if it is not told.
func programName(process string) string {
	file, err := os.Readlink(filepath.Join("/proc", process, "exe"))
	if err != nil {
		return ""
	}
	return filepath.Base(strings.TrimSuffix(file, " (deleted)"))
}
