package storage

import (
	"context"
	"errors"
	"fmt"
	"path"
)

// Drift is one difference between the manifest and what is there.
type Drift struct {
	ID   string `json:"id"`
	Path string `json:"path"` // on the host
	Kind Kind   `json:"kind"` // of the node
	Want string `json:"want"`
	Got  string `json:"got"`
}

// Check compares what is there with the manifest and returns every difference, in the order of the paths. What the
// manifest does not know is no drift, nor is a socket or file that its program has not made. The error is about what
// could not be looked at.
func Check(ctx context.Context, m *Manifest) ([]Drift, error) {
	w, err := newWalker(m.Root)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	l := m.layout()
	if err := l.Validate(); err != nil {
		return nil, err
	}
	pl := newPlanner(w, l, m.mountsApplied())
	if err := pl.nodes(ctx); err != nil {
		return nil, err
	}
	drifts := pl.drifts(m)
	var rest []error
	for _, err := range pl.refusals {
		if c := (*Conflict)(nil); !errors.As(err, &c) {
			rest = append(rest, err)
		}
	}
	return drifts, errors.Join(rest...)
}

// mountsApplied reports whether mounts were looked at when the manifest was written.
func (m *Manifest) mountsApplied() bool {
	for _, mount := range m.Mounts {
		if mount.State != MountIgnored {
			return true
		}
	}
	return false
}

// drifts reads the plan's steps as differences.
func (pl *planner) drifts(m *Manifest) []Drift {
	was := map[string]string{}
	for i := range m.Nodes {
		was[m.Nodes[i].ID] = m.Nodes[i].State
	}
	drifts := pl.lostMounts(m)
	for i := range pl.plan.Steps {
		s := &pl.plan.Steps[i]
		d := Drift{s.ID, path.Join(m.Root, s.Path), s.Kind, s.To, s.From}
		switch {
		case s.Action == ActionConflict:
		case !s.Changes() || s.ID == "":
			continue
		case s.Action == ActionMake && was[s.ID] != StatePresent:
			continue
		case s.Action == ActionChmod:
			d.Want, d.Got = fmt.Sprintf("mode %s", s.To), fmt.Sprintf("mode %s", s.From)
		case s.Action == ActionChown:
			d.Want, d.Got = fmt.Sprintf("owner %s", s.To), fmt.Sprintf("owner %s", s.From)
		}
		drifts = append(drifts, d)
	}
	return drifts
}
