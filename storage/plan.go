package storage

import (
	"context"
	"errors"
	"os"
	"time"
)

// Action is what a step does.
type Action string

// The actions. Make, chmod, chown and mount change the tree; the others only say what was seen.
const (
	ActionMake     Action = "make"     // it is absent and will be made
	ActionChmod    Action = "chmod"    // its mode is set
	ActionChown    Action = "chown"    // its owner is set
	ActionMount    Action = "mount"    // a file system is made and mounted
	ActionKeep     Action = "keep"     // it is as it should be
	ActionReserve  Action = "reserve"  // it is absent, and its owner will make it
	ActionConflict Action = "conflict" // something else is there
	ActionOrphan   Action = "orphan"   // the previous manifest has it, this layout does not; it is left alone
)

// Step is one line of a plan.
type Step struct {
	Action Action `json:"action"`
	// ID is empty for a parent that the layout does not declare.
	ID string `json:"id,omitempty"`
	// Path is inside the root.
	Path string `json:"path"`
	Kind Kind   `json:"kind"`
	From string `json:"from,omitempty"` // what is there
	To   string `json:"to,omitempty"`   // what will be there

	want  *Node   // with the owner that it will have
	found found   // what the plan saw
	dir   *folder // the directory that holds it
	name  string
	self  *folder // the directory itself, when it is one
}

// Changes reports whether the step writes.
func (s *Step) Changes() bool {
	return s.Action == ActionMake || s.Action == ActionChmod || s.Action == ActionChown || s.Action == ActionMount
}

// Plan is wanted against found.
type Plan struct {
	// Root is the root's path on the host.
	Root string `json:"root"`
	// Steps stand in the order of their paths, parents first, orphans last.
	Steps []Step `json:"steps"`
	// Warnings are whole sentences about what is not wrong enough to refuse.
	Warnings []string `json:"warnings,omitempty"`

	manifest *Manifest // as it is when every step is done
	file     manifestFile
}

// Changed returns the number of steps that write.
func (p *Plan) Changed() int {
	n := 0
	for i := range p.Steps {
		if p.Steps[i].Changes() {
			n++
		}
	}
	return n
}

// PlaceOptions says where and how to place. The zero value places into / with its mount policies.
type PlaceOptions struct {
	// Root is the directory that the tree is placed under; see [CleanRoot].
	Root string
	// Manifest is the manifest's path on the host; the default is [DefaultManifest] of the root.
	Manifest string
	Mounts   MountMode
	// WaitLock is how long to wait while another place works on the same root; 0 does not wait.
	WaitLock time.Duration
}

func (o PlaceOptions) withDefaults() (PlaceOptions, error) {
	root, err := CleanRoot(o.Root)
	if err != nil {
		return o, err
	}
	o.Root = root
	if o.Manifest == "" {
		o.Manifest = DefaultManifest(root)
	}
	o.Manifest, err = CleanRoot(o.Manifest)
	return o, err
}

// NewPlan compares the layout with what is under the root. It looks only and writes nothing. Everything in the way is
// joined into the error: [*Conflict] for a node of another kind, [fs.ErrPermission], a read-only file system and so on.
// The plan is returned as well then, with its conflict steps; it is nil only when nothing could be looked at.
func NewPlan(ctx context.Context, l *Layout, o PlaceOptions) (*Plan, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := l.Validate(); err != nil {
		return nil, err
	}
	w, err := newWalker(o.Root)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	return newPlan(ctx, w, l, o)
}

// newPlan plans a valid layout with an open walker.
func newPlan(ctx context.Context, w *walker, l *Layout, o PlaceOptions) (*Plan, error) {
	pl := newPlanner(w, l, o.Mounts.apply(o.Root))
	pl.caller = &owner{os.Geteuid(), os.Getegid()}
	w.caller = pl.caller
	digest := make(chan string, 1)
	go func() { digest <- l.Digest() }() // meanwhile
	err := pl.nodes(ctx)
	pl.digest = <-digest
	if err != nil {
		return nil, err
	}
	if err := pl.manifest(o); err != nil {
		return nil, err
	}
	return pl.plan, errors.Join(pl.refusals...)
}
