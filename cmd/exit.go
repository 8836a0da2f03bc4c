package cmd

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"

	"seedbed/internal/daemon"
	"seedbed/logpump"
	"seedbed/preseed"
	"seedbed/preseed/offline"
	"seedbed/storage"
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

// partialError is an error that ended a run whose report is already printed: it is said,
// and is no document of its own.
type partialError struct{ err error }

func (e partialError) Error() string {
	if errors.Is(e.err, context.Canceled) {
		return "interrupted: what the report says is done stays done"
	}
	return e.err.Error()
}

func (e partialError) Unwrap() error { return e.err }

// exitCode is the one table from errors to exit codes.
func exitCode(err error) int {
	var (
		code     codeError
		exited   *daemon.ExitError
		usage    *usageError
		conflict *storage.Conflict
		invalid  *storage.ValidationError
		document *storage.BadDocument
		unknown  *storage.UnknownNode
		notFIFO  *logpump.NotFIFO
		undone   *storage.Interrupted
		binary   *daemon.BinaryError
		config   *daemon.ConfigError
		inUse    *daemon.InUse
		missing  *daemon.MissingDir
		socket   *daemon.SocketError
		option   *preseed.OptionError
	)
	switch {
	case errors.As(err, &code):
		return int(code)
	case errors.As(err, &exited):
		return exited.ExitCode()
	case errors.As(err, &binary):
		return binary.ExitCode()
	case errors.As(err, &usage), errors.As(err, &unknown), errors.As(err, &option):
		return exitUsage
	case errors.As(err, &invalid), errors.As(err, &document), errors.As(err, &config):
		return exitData
	case errors.Is(err, storage.ErrNoManifest), errors.Is(err, storage.ErrUntrusted), errors.As(err, &missing):
		return exitConfig
	case errors.Is(err, storage.ErrLocked), errors.Is(err, offline.ErrInUse), errors.Is(err, daemon.ErrStartTimeout), errors.As(err, &inUse):
		return exitTryAgain
	case errors.Is(err, fs.ErrPermission):
		return exitPermission
	case errors.As(err, &conflict), errors.As(err, &undone), errors.As(err, &notFIFO), errors.As(err, &socket), cannotCreate(err):
		return exitCantCreate
	case errors.Is(err, preseed.ErrUnavailable):
		return exitUnavailable
	}
	return exitSome
}

func cannotCreate(err error) bool {
	for _, errno := range []unix.Errno{unix.ENOSPC, unix.EDQUOT, unix.EROFS, unix.ENOTDIR, unix.EISDIR, unix.ELOOP, unix.EEXIST, unix.ENAMETOOLONG} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// hint returns the advice that an error carries, "" where there is none.
func hint(err error) string {
	var h interface{ Hint() string }
	if errors.As(err, &h) {
		return h.Hint()
	}
	return ""
}
