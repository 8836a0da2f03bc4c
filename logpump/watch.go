package logpump

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// newInotify returns an inotify instance that tells of the events of one file. It is read
// through the poller: without events nothing wakes up.
func newInotify(path string, events uint32) (*os.File, error) {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	f := os.NewFile(uintptr(fd), "inotify of "+path)
	if _, err := unix.InotifyAddWatch(fd, path, events); err != nil {
		return nil, errors.Join(&os.PathError{Op: "watch", Path: path, Err: err}, f.Close())
	}
	return f, nil
}

// newWatch tells of what happens to the entries of path's directory.
func newWatch(path string) (*os.File, error) {
	const events = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_ONLYDIR
	return newInotify(filepath.Dir(path), events)
}

// guard mends what happens at the path until the context ends.
func (v *server) guard(watch *os.File) error {
	stop := context.AfterFunc(v.ctx, func() { _ = watch.SetReadDeadline(time.Unix(1, 0)) })
	defer watch.Close()
	defer stop()
	buf := make([]byte, 4096)
	if err := v.mend(); err != nil { // it may have happened before the watch began
		return err
	}
	for {
		n, err := watch.Read(buf)
		switch {
		case v.ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		if !concerns(buf[:n], filepath.Base(v.path)) {
			continue
		}
		if err := v.mend(); err != nil {
			return err
		}
	}
}

// concerns reports whether one of the events is about the name, or tells that some were lost or that
// the directory itself is gone (inotify(7)).
func concerns(events []byte, name string) bool {
	for len(events) >= unix.SizeofInotifyEvent {
		mask := binary.NativeEndian.Uint32(events[4:])
		length := binary.NativeEndian.Uint32(events[12:])
		end := unix.SizeofInotifyEvent + int(length)
		if end > len(events) {
			return true
		}
		found := strings.TrimRight(string(events[unix.SizeofInotifyEvent:end]), "\x00")
		if found == name || mask&(unix.IN_Q_OVERFLOW|unix.IN_IGNORED) != 0 {
			return true
		}
		events = events[end:]
	}
	return false
}
