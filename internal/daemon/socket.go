package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// maxSocketPath is the longest path that a socket can be bound to in bytes: the
// size of sun_path less its final NUL (unix(7)).
const maxSocketPath = 107

// SocketError says that containerd could not listen at its address.
type SocketError struct {
	Path string
	// Fact is what is in the way.
	Fact string
	// Advice is what to do about it.
	Advice string
}

func (e *SocketError) Error() string {
	return fmt.Sprintf("listen at %q: %s", e.Path, e.Fact)
}

// Hint says what to do about it.
func (e *SocketError) Hint() string { return e.Advice }

// InUse says that another process runs on the same root or address.
type InUse struct {
	// Path is the database or the socket that it holds.
	Path string
	// Socket says that it is the socket.
	Socket bool
	// PID is its process; 0 if the kernel does not tell.
	PID int
}

func (e *InUse) Error() string {
	if e.Socket {
		return fmt.Sprintf("listen at %q: another containerd answers there, %s", e.Path, e.who())
	}
	return fmt.Sprintf("use %q: %s holds its lock, another containerd or an offline import", e.Path, e.who())
}

// who names the process.
func (e *InUse) who() string {
	if e.PID == 0 {
		return "another process"
	}
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", e.PID))
	if err != nil {
		return fmt.Sprintf("pid %d", e.PID)
	}
	return fmt.Sprintf("pid %d (%s)", e.PID, strings.TrimSpace(string(name)))
}

// Hint says what to do about it.
func (e *InUse) Hint() string { return "stop it, or wait until it has ended" }

// checkSocket accepts an address where containerd can listen: a path that is
// free or holds what containerd replaces by itself, a socket that nobody listens at or a plain file.
func checkSocket(path string) error {
	if n := len(path); n > maxSocketPath {
		return &SocketError{path, fmt.Sprintf("the path is %d bytes long, a socket's may have %d", n, maxSocketPath), "choose a shorter --root"}
	}
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil // a missing parent is a finding of its own
	}
	if err != nil {
		return err
	}
	if info.IsDir() {
		return &SocketError{
			path, "it is a directory",
			"a bind mount of a socket that was not there yet makes one; remove it, and start what mounts it after containerd",
		}
	}
	if info.Mode().Type() != fs.ModeSocket {
		return nil
	}
	return probe(path)
}

// probe returns an *InUse if somebody listens at path.
func probe(path string) error {
	conn, err := net.DialTimeout("unix", path, time.Second)
	switch {
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, unix.EAGAIN), errors.Is(err, os.ErrDeadlineExceeded):
		return &InUse{Path: path, Socket: true} // its queue is full
	case err != nil:
		return err
	}
	defer conn.Close()
	return &InUse{Path: path, Socket: true, PID: peer(conn)}
}

// peer returns the process that listens behind conn, 0 if it is not known.
func peer(conn net.Conn) int {
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return 0
	}
	raw, err := unixConn.SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	_ = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	return pid
}
