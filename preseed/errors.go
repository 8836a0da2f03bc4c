package preseed

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"github.com/containerd/errdefs"

	"seedbed/preseed/archive"
)

// ErrUnavailable says that containerd cannot be reached.
var ErrUnavailable = errors.New("containerd is not available")

// Error is what is wrong with a bundle or an image, as reading its archive says it and with the
// codes of this package beside those of package archive.
type Error = archive.Error

// The codes that an import adds to those of package archive.
const (
	CodeNoName        archive.Code = "no_name"        // nothing names the image
	CodeBadName       archive.Code = "bad_name"       // the name is no valid reference
	CodeWrongPlatform archive.Code = "wrong_platform" // the image is for other platforms only
	CodeUnavailable   archive.Code = "unavailable"    // containerd went away
	CodeNamespace     archive.Code = "namespace"      // the namespace is missing or invalid
	CodeConflict      archive.Code = "conflict"       // two bundles disagree on what a name means
)

// OptionError is an option whose value means nothing: the command line is wrong.
type OptionError struct {
	Option, Value string
	Err           error
	Advice        string // next step; may be empty
}

func (e *OptionError) Error() string {
	return fmt.Sprintf("read option %s: %q: %v", e.Option, e.Value, e.Err)
}

// Unwrap returns why the value was refused.
func (e *OptionError) Unwrap() error { return e.Err }

// Hint returns the next step, or "".
func (e *OptionError) Hint() string { return e.Advice }

// errorOf gives any error the form of the report.
func errorOf(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	text := errorText(err)
	e = &Error{Code: codeOf(err), Found: text, Advice: adviceFor(err)}
	if text != err.Error() { // else it would be said twice
		e.Err = err
	}
	return e
}

// codeOf also knows what containerd says, whose errors have lost their type on the way.
func codeOf(err error) archive.Code {
	switch {
	case errdefs.IsUnavailable(err), errors.Is(err, ErrUnavailable), silent(err), strings.Contains(err.Error(), "error reading from server"):
		return CodeUnavailable
	case strings.Contains(err.Error(), syscall.ENOSPC.Error()), strings.Contains(err.Error(), syscall.EDQUOT.Error()):
		return archive.CodeNoSpace
	case errdefs.IsPermissionDenied(err):
		return archive.CodePermission
	}
	return archive.CodeOf(err)
}

func errorText(err error) string {
	switch {
	case errors.Is(err, context.Canceled):
		return "interrupted"
	case errors.Is(err, context.DeadlineExceeded):
		return "timed out"
	case silent(err):
		return "containerd does not answer any more"
	case codeOf(err) == CodeUnavailable:
		return "containerd went away"
	case codeOf(err) == archive.CodeNoSpace:
		return "no space left for the image store"
	}
	return err.Error()
}

const adviceNoSpace = "make room on the file system of containerd's root, then run the import again"

func adviceFor(err error) string {
	switch codeOf(err) {
	case CodeUnavailable:
		return "see why containerd stopped, then run the import again: it goes on where it was"
	case archive.CodeNoSpace:
		return adviceNoSpace
	case archive.CodePermission:
		return "run as a user who may read the bundle and write to containerd"
	}
	return ""
}

// quote shows a name that comes from outside.
func quote(name string) string { return strconv.QuoteToGraphic(name) }
