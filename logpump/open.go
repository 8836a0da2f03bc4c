package logpump

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// NotFIFO is the error of [Open] and [Adopt] for something that is no FIFO.
type NotFIFO struct {
	// Path of what was found, or the name of the descriptor.
	Path string
	// Found is what it is: "regular file", "directory", "symbolic link", …
	Found string
}

func (e *NotFIFO) Error() string {
	return fmt.Sprintf("open FIFO %q: it is a %s", e.Path, e.Found)
}

// Hint says what to do about it.
func (e *NotFIFO) Hint() string {
	return "move it away; the FIFO is made in its place at the next start"
}

// CheckFIFO returns nil if there is a FIFO at path, *[NotFIFO] if there is something
// else, and an *[fs.PathError] otherwise. It does not open it: that would wake
// up writers that wait for a reader, only for them to lose it again.
func CheckFIFO(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeNamedPipe {
		return &NotFIFO{path, kind(info.Mode())}
	}
	return nil
}

// Open opens the FIFO at path for a [Pump]. It is opened for reading and writing
// (fifo(7)), so that opening waits for no writer, no writer waits for a reader, and
// the end of one writer is no end of file. A symbolic link is not followed and
// nothing is created or truncated; what is no FIFO is a *[NotFIFO], other errors
// are an *[fs.PathError].
func Open(path string) (*os.File, error) {
	if err := CheckFIFO(path); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, &NotFIFO{path, kind(fs.ModeSymlink)}
	}
	if err != nil {
		return nil, err
	}
	if err := mustBeFIFO(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Adopt returns a second handle of an open FIFO, as [Open] would have returned
// it: non-blocking, and closed on exec. It is meant for a descriptor that a socket unit
// passed; f itself stays open and is the caller's to close.
func Adopt(f *os.File) (*os.File, error) {
	if err := mustBeFIFO(f); err != nil {
		return nil, err
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("adopt FIFO %q: %w", f.Name(), err)
	}
	fd := -1
	var dup error
	err = raw.Control(func(old uintptr) {
		if fd, dup = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 3); dup == nil {
			dup = unix.SetNonblock(fd, true)
		}
	})
	if err = errors.Join(err, dup); err != nil {
		if fd >= 0 {
			err = errors.Join(err, unix.Close(fd))
		}
		return nil, fmt.Errorf("adopt FIFO %q: %w", f.Name(), err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

func mustBeFIFO(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeNamedPipe {
		return &NotFIFO{f.Name(), kind(info.Mode())}
	}
	return nil
}

// kind names the type of a file in words.
func kind(m fs.FileMode) string {
	switch m.Type() {
	case 0:
		return "regular file"
	case fs.ModeDir:
		return "directory"
	case fs.ModeSymlink:
		return "symbolic link"
	case fs.ModeSocket:
		return "socket"
	case fs.ModeNamedPipe:
		return "FIFO"
	}
	return "device"
}
