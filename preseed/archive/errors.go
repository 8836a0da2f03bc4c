package archive

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
)

// Code is the error code of the report: one word for a script.
type Code string

// The codes of the report that reading an archive can give.
const (
	CodeTruncated              Code = "truncated"
	CodeDigestMismatch         Code = "digest_mismatch"
	CodeMissingBlob            Code = "missing_blob"
	CodeNotAnImage             Code = "not_an_image"
	CodeUnsupportedCompression Code = "unsupported_compression"
	CodeEmpty                  Code = "empty"
	CodeChangedWhileReading    Code = "changed_while_reading"
	CodeNoSpace                Code = "no_space"
	CodePermission             Code = "permission"
	CodeInternal               Code = "internal"
)

// Error is what is wrong with an archive. Its text does not name the archive's
// path: who opened it knows that.
type Error struct {
	Code     Code
	Member   string // member it is about, raw as in the archive; may be empty
	Expected string // what should have been there; may be empty
	Found    string // what is there, in words
	Advice   string // next step for an operator; may be empty
	Err      error  // cause, may be nil
}

// Error is `member: found, expected …: cause`, with the member quoted.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Member != "" {
		b.WriteString(quote(e.Member) + ": ")
	}
	b.WriteString(e.Found)
	if e.Expected != "" {
		b.WriteString(", expected " + e.Expected)
	}
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Hint returns the next step for an operator, or "".
func (e *Error) Hint() string { return e.Advice }

// CodeOf returns the report's code for an error of this package, also for
// those that come from the system as they are.
func CodeOf(err error) Code {
	var e *Error
	switch {
	case errors.As(err, &e):
		return e.Code
	case errors.Is(err, fs.ErrPermission):
		return CodePermission
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return CodeNoSpace
	}
	return CodeInternal
}
