package logpump

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// settle opens what is at the path at the beginning, and makes it if nothing is.
func (v *server) settle() error {
	f, err := Open(v.path)
	if errors.Is(err, fs.ErrNotExist) {
		return v.fill()
	}
	if err != nil {
		return err
	}
	return v.pump(f, true)
}

// mend puts right what has happened at the path. What it cannot put right it says once;
// the FIFOs that are open go on being pumped.
func (v *server) mend() error {
	info, err := os.Lstat(v.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		v.say(Warning, "the log FIFO "+v.path+" was removed: made it anew")
		err = v.fill()
	case err != nil:
	case v.knows(info):
		return nil
	case info.Mode().Type() == fs.ModeNamedPipe:
		v.say(Warning, "the log FIFO "+v.path+" was replaced by another: reading both")
		err = v.settle()
	case info.Mode().IsRegular():
		v.say(Warning, "the log FIFO "+v.path+" was replaced by a regular file: took its text and put a FIFO back")
		err = v.swap()
	default:
		err = &NotFIFO{v.path, kind(info.Mode())}
	}
	if err != nil {
		v.say(Error, fmt.Sprintf("put log FIFO back: %v", err))
		return nil
	}
	v.tally.reopened.Add(1)
	return nil
}

// fill puts a FIFO where nothing is. It is open before it can be seen, so that no
// writer waits for a reader; if something is there meanwhile, the watch tells of it.
func (v *server) fill() error {
	f, hidden, err := v.make()
	if err != nil {
		return err
	}
	err = unix.Renameat2(unix.AT_FDCWD, hidden, unix.AT_FDCWD, v.path, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EEXIST) {
		return errors.Join(f.Close(), os.Remove(hidden))
	}
	if err != nil {
		return errors.Join(&os.LinkError{Op: "rename", Old: hidden, New: v.path, Err: err}, f.Close(), os.Remove(hidden))
	}
	return v.pump(f, true)
}

// swap puts a FIFO in the place of a regular file, in one step, and pumps the file for as
// long as anybody writes to it.
func (v *server) swap() error {
	f, hidden, err := v.make()
	if err != nil {
		return err
	}
	err = unix.Renameat2(unix.AT_FDCWD, hidden, unix.AT_FDCWD, v.path, unix.RENAME_EXCHANGE)
	if err != nil {
		return errors.Join(&os.LinkError{Op: "exchange", Old: hidden, New: v.path, Err: err}, f.Close(), os.Remove(hidden))
	}
	if err := v.pump(f, true); err != nil {
		return err
	}
	stray, err := newStray(v.ctx, hidden)
	if err != nil {
		return err
	}
	o := v.Options
	o.Spool = ""
	v.group.Go(func() error { return pumpSource(v.ctx, stray, o, v.sink, v.tally) })
	return nil
}

// make makes a FIFO beside the path, with the mode and owner of the first one, and opens it.
func (v *server) make() (*os.File, string, error) {
	hidden := filepath.Join(filepath.Dir(v.path), "."+filepath.Base(v.path)+"."+rand.Text())
	if err := unix.Mkfifo(hidden, uint32(v.mode)); err != nil {
		return nil, "", &fs.PathError{Op: "mkfifo", Path: hidden, Err: err}
	}
	f, err := Open(hidden)
	if err != nil {
		return nil, "", errors.Join(err, os.Remove(hidden))
	}
	// The owner first: changing it takes mode bits away. The umask has taken others.
	if v.owner != currentOwner() {
		err = f.Chown(v.owner.uid, v.owner.gid)
	}
	if err = errors.Join(err, f.Chmod(v.mode)); err != nil {
		return nil, "", errors.Join(err, f.Close(), os.Remove(hidden))
	}
	return f, hidden, nil
}

type owner struct{ uid, gid int }

func currentOwner() owner { return owner{os.Geteuid(), os.Getegid()} }

func ownerOf(info fs.FileInfo) owner {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return owner{int(st.Uid), int(st.Gid)}
	}
	return currentOwner()
}
