package units

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/coreos/go-systemd/v22/dbus"
)

// ErrNoSystemd says that no systemd answers on this host.
var ErrNoSystemd = errors.New("no systemd answers")

// Status is a unit as the running service manager has it: org.freedesktop.systemd1(5).
type Status struct {
	Name    string `json:"name"`
	Load    string `json:"load"`              // loaded, not-found, masked, bad-setting, error
	Enabled string `json:"enabled,omitempty"` // enabled, disabled, static, masked, …
	Active  string `json:"active"`            // active, activating, inactive, failed, …
	Sub     string `json:"sub"`               // running, exited, auto-restart, …
	Result  string `json:"result,omitempty"`  // of the last run: success, exit-code, timeout, …; none of a target
	Exit    int    `json:"exit,omitempty"`    // the last run's exit status
	Text    string `json:"status,omitempty"`  // what the unit said of itself last
	// Reload says that the unit's files are newer than what the manager has read: `systemctl daemon-reload`.
	Reload bool `json:"needs_reload,omitempty"`
}

// Failed reports whether the unit could not be loaded, or did not do its job the last time.
func (s *Status) Failed() bool {
	switch s.Load {
	case "error", "bad-setting":
		return true
	}
	return s.Active == "failed" || s.Active != "active" && s.Result != "" && s.Result != "success"
}

// Running asks the host's service manager for the named units; in the place of a template stand its instances. The error
// is ErrNoSystemd where no manager can be reached.
func Running(ctx context.Context, names []string) ([]Status, error) {
	conn, err := dbus.NewWithContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask systemd: %w: %w", ErrNoSystemd, err)
	}
	defer conn.Close()
	var all []Status
	for _, name := range names {
		instances := []string{name}
		if before, after, template := strings.Cut(name, "@."); template {
			if instances, err = loaded(ctx, conn, before+"@?*."+after); err != nil {
				return nil, err
			}
		}
		for _, n := range instances {
			s, err := status(ctx, conn, n)
			if err != nil {
				return nil, err
			}
			all = append(all, s)
		}
	}
	return all, nil
}

// loaded returns the names of the units in the manager's memory that a pattern fits.
func loaded(ctx context.Context, conn *dbus.Conn, pattern string) ([]string, error) {
	found, err := conn.ListUnitsByPatternsContext(ctx, nil, []string{pattern})
	if err != nil {
		return nil, fmt.Errorf("list units %s: %w", pattern, err)
	}
	var names []string
	for _, u := range found {
		names = append(names, u.Name)
	}
	return names, nil
}

func status(ctx context.Context, conn *dbus.Conn, name string) (Status, error) {
	properties, err := conn.GetAllPropertiesContext(ctx, name)
	if err != nil {
		return Status{}, fmt.Errorf("ask systemd for unit %s: %w", name, err)
	}
	text := func(property string) string {
		value, _ := properties[property].(string) // absent where the type of unit has no such property
		return value
	}
	s := Status{
		Name: name, Load: text("LoadState"), Enabled: text("UnitFileState"),
		Active: text("ActiveState"), Sub: text("SubState"), Result: text("Result"), Text: text("StatusText"),
	}
	s.Reload, _ = properties["NeedDaemonReload"].(bool)
	if exit, ok := properties["ExecMainStatus"].(int32); ok {
		s.Exit = int(exit)
	}
	return s, nil
}
