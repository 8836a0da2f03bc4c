package cmd

import (
	"errors"
	"io/fs"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"seedbed/internal/daemon"
	"seedbed/logpump"
	"seedbed/preseed"
	"seedbed/preseed/offline"
	"seedbed/storage"
	"seedbed/units"
)

// The exit codes that scripts rely on; those from 64 up are sysexits.h's.
const (
	exitOK          = 0
	exitSome        = 1  // some items failed or drifted, the others are done
	exitUsage       = 2  // the command line is wrong
	exitData        = 65 // a layout, manifest, configuration or every bundle is bad data
	exitUnavailable = 69 // containerd cannot be reached, or went away
	exitCantCreate  = 73 // something cannot be created
	exitTryAgain    = 75 // a lock is held, a wait timed out
	exitPermission  = 77 // no permission
	exitConfig      = 78 // the manifest is missing or not to be trusted
)

// usageError is a command line that does not fit.
type usageError struct {
	command string
	err     error
	similar []string
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// Hint names commands that were perhaps meant, or where the help is.
func (e *usageError) Hint() string {
	if len(e.similar) > 0 {
		return "did you mean " + strings.Join(e.similar, " or ") + "?"
	}
	return "see `" + e.command + " --help`"
}

// codeError is an outcome whose report is already printed: only the exit code
// is left to be said.
type codeError int

func (codeError) Error() string { return "" }

// inputError is a layout, a bundle or another file to be read that is not there.
type inputError struct{ err error }

func (e inputError) Error() string { return e.err.Error() }
func (e inputError) Unwrap() error { return e.err }

// input marks the error of reading what the command line names, if it is that
// there is no such thing.
func input(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return inputError{err}
	}
	return err
}

// exitCode returns the exit code for an error.
func exitCode(err error) int {
	var (
		code   codeError
		exited *daemon.ExitError
		binary *daemon.BinaryError
	)
	switch {
	case errors.As(err, &code):
		return int(code)
	case errors.As(err, &exited):
		return exited.ExitCode()
	case errors.As(err, &binary):
		return binary.ExitCode()
	}
	for _, row := range exitTable() {
		if row.fits(err) {
			return row.code
		}
	}
	return exitSome
}

// exitRow is a row of the table from errors to exit codes.
type exitRow struct {
	code int
	any  []func(error) bool // the errors that have the code
}

func (r exitRow) fits(err error) bool {
	return slices.ContainsFunc(r.any, func(fits func(error) bool) bool { return fits(err) })
}

// exitTable is the one table from errors to exit codes. Of joined errors the
// first row that fits one of them counts.
func exitTable() []exitRow {
	type tests = []func(error) bool
	return []exitRow{
		{exitUsage, tests{
			as[*usageError], as[*preseed.OptionError], as[*storage.UnknownNode], as[*units.UnknownUnit],
		}},
		{exitPermission, tests{is(fs.ErrPermission)}},
		{exitData, tests{
			as[inputError], as[*storage.ValidationError], as[*storage.BadDocument], as[*daemon.ConfigError], as[*daemon.VersionError], as[*units.BadParam],
			as[*offline.DamagedError],
		}},
		{exitConfig, tests{
			is(storage.ErrNoManifest), is(storage.ErrUntrusted), as[*daemon.MissingDir], as[*missingNode], as[*layoutOutside],
		}},
		{exitTryAgain, tests{
			is(storage.ErrLocked), is(offline.ErrInUse), is(daemon.ErrStartTimeout), as[*daemon.InUse],
		}},
		{exitUnavailable, tests{is(preseed.ErrUnavailable), is(units.ErrNoSystemd)}},
		{exitCantCreate, tests{
			as[*storage.Conflict], as[*storage.BadMount], as[*storage.UnsafePath], as[*storage.Interrupted], as[*units.Conflict], as[*logpump.NotFIFO], as[*daemon.SocketError],
			is(unix.ENOSPC), is(unix.EDQUOT), is(unix.EROFS), is(unix.ENOENT), is(unix.ENOTDIR), is(unix.EISDIR),
			is(unix.ELOOP), is(unix.EEXIST), is(unix.ENAMETOOLONG),
		}},
	}
}

func is(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

func as[T error](err error) bool {
	var target T
	return errors.As(err, &target)
}

// hint returns the advice that an error carries, "" where there is none.
func hint(err error) string {
	var h interface{ Hint() string }
	switch {
	case errors.As(err, &h) && h.Hint() != "":
		return h.Hint()
	case errors.Is(err, fs.ErrPermission):
		return "run it as root, or as the user who owns that path"
	case errors.Is(err, unix.EROFS):
		return "the file system is read-only: mount it writable, or name another place"
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return "make room there and run it again"
	}
	return ""
}
