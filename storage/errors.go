package storage

import (
	"errors"
	"fmt"
	"strings"
)

// The errors that a caller tells apart with [errors.Is].
var (
	// ErrNoManifest says that there is no manifest at the path.
	ErrNoManifest = errors.New("no manifest")
	// ErrUntrusted says that there is a manifest, but that it may not be believed.
	ErrUntrusted = errors.New("manifest is not to be trusted")
	// ErrLocked says that another place works on the same root.
	ErrLocked = errors.New("another place is at work there")
)

// Conflict is a node of another kind in the place of a declared one. Nothing was changed when it is reported.
type Conflict struct {
	Path string // on the host, root included
	Want string // "dir", "symlink to /x", …
	Got  string
}

// Error says what was found and what was expected.
func (c *Conflict) Error() string {
	return fmt.Sprintf("place %q: found %s: expected %s", c.Path, c.Got, c.Want)
}

// Hint is the next step.
func (c *Conflict) Hint() string {
	return fmt.Sprintf("nothing was changed; move %q away (or change the layout) and run seedbed storage place again", c.Path)
}

// ValidationError is one finding about a layout or a declaration.
type ValidationError struct {
	Position string // "node data.etcd", "nodes[3]", "Root.Data.Etcd"
	Fact     string
}

// Error is the position and the fact.
func (e *ValidationError) Error() string { return e.Position + ": " + e.Fact }

// Hint is the next step.
func (e *ValidationError) Hint() string {
	return "nothing was changed; compare the layout with the output of seedbed storage layout node"
}

// BadDocument is a layout or manifest whose bytes are not what the schema says.
type BadDocument struct {
	Path string
	Err  error
}

// Error names the document and the cause.
func (e *BadDocument) Error() string { return fmt.Sprintf("read %q: %v", e.Path, e.Err) }

// Unwrap returns the cause.
func (e *BadDocument) Unwrap() error { return e.Err }

// Hint is the next step.
func (e *BadDocument) Hint() string {
	return "a layout looks like the output of seedbed storage layout; a damaged manifest is replaced by seedbed storage place"
}

// UnknownNode is an id that the manifest does not have.
type UnknownNode struct {
	ID      string
	Nearest []string // the most similar ids, best first
}

// Error names the id.
func (e *UnknownNode) Error() string {
	return fmt.Sprintf("find node %q: no such id in the manifest", e.ID)
}

// Hint lists the nearest ids.
func (e *UnknownNode) Hint() string {
	if len(e.Nearest) == 0 {
		return "seedbed storage show lists all ids"
	}
	return "did you mean " + strings.Join(e.Nearest, ", ") + "?"
}

// Interrupted is a place that was stopped half-way, by an error after the plan had found nothing wrong.
type Interrupted struct {
	Err       error
	Done      int  // steps that were begun before the error
	Undone    int  // of these, the ones that were taken back
	Withdrawn bool // the manifest was removed, because the tree is no longer what it says
}

// Error is the cause, and how far it came.
func (e *Interrupted) Error() string {
	left := "the old manifest, if there was one, still holds"
	if e.Withdrawn {
		left = "the manifest was withdrawn"
	}
	if e.Done == 0 {
		return fmt.Sprintf("%v (nothing was changed; %s)", e.Err, left)
	}
	return fmt.Sprintf("%v (%d of %d steps were taken back; %s)", e.Err, e.Undone, e.Done, left)
}

// Unwrap returns the cause.
func (e *Interrupted) Unwrap() error { return e.Err }

// Hint is the next step.
func (e *Interrupted) Hint() string {
	return "mend the cause and run seedbed storage place again; it finishes what is left"
}

// advised is an error with its next step.
type advised struct {
	error
	hint string
}

// Unwrap returns the error without the advice.
func (e *advised) Unwrap() error { return e.error }

// Hint is the next step.
func (e *advised) Hint() string { return e.hint }
