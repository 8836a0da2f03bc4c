package units

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Findings is what systemd-analyze said about the units.
type Findings struct{ Output string }

func (e *Findings) Error() string {
	return "check units: systemd-analyze verify: " + strings.ReplaceAll(e.Output, "\n", "; ")
}

// Check lets the host's systemd verify the units, and all units that they lead to, as Render gives them:
// `systemd-analyze verify --recursive-errors=yes`. Whatever it says is a failure, returned as *Findings. The error
// wraps exec.ErrNotFound where there is no systemd-analyze.
//
// It judges the files and not the host: where the binary is not installed, an empty program stands in for it, and man
// pages are not looked for.
func Check(ctx context.Context, p Params) error {
	return check(ctx, "/", p, nil)
}

// CheckFound is Check for the units as they were found in the system under root, edited ones and drop-ins included; what
// is not installed or masked is as Render gives it. A program is looked for on the host and in root.
func CheckFound(ctx context.Context, root string, p Params, found []Found) error {
	if !slices.ContainsFunc(found, func(f Found) bool { return f.File == Edited || len(f.DropIns) > 0 }) {
		return nil // they are those of Check
	}
	return check(ctx, root, p, found)
}

func check(ctx context.Context, root string, p Params, found []Found) error {
	dir, err := os.MkdirTemp("", "seedbed-units-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	all, err := renderAll(p)
	if err != nil {
		return err
	}
	all = append(all, overlay(all, found)...)
	if p = p.withDefaults(); !isExecutable(p.Binary) {
		program, err := standIn(dir)
		if err != nil {
			return err
		}
		for i := range all {
			all[i].text = bytes.ReplaceAll(all[i].text, []byte(p.Binary+" "), []byte(program+" "))
		}
	}
	err = verify(ctx, dir, all)
	if f := (*Findings)(nil); errors.As(err, &f) {
		return f.inRoot(root, dir, found)
	}
	return err
}

// overlay puts the files that were found into the place of the rendered ones, and returns their drop-ins, which have
// names with a directory.
func overlay(all []rendered, found []Found) []rendered {
	var dropIns []rendered
	for i, f := range found {
		if f.File == Edited {
			all[i].text = f.text
		}
		for _, d := range f.settled {
			dropIns = append(dropIns, rendered{name: f.Name + ".d/" + filepath.Base(d.path), text: d.text})
		}
	}
	return dropIns
}

// inRoot returns the findings with the paths that the files have in the root, without those about a program that is not
// on the host and is in the root, or nil when none is left.
func (e *Findings) inRoot(root, dir string, found []Found) error {
	var names []string
	for _, f := range found {
		for _, d := range f.settled {
			names = append(names, filepath.Join(dir, f.Name+".d", filepath.Base(d.path)), d.path)
		}
	}
	for _, f := range found {
		if f.Path != "" {
			names = append(names, filepath.Join(dir, f.Name), f.Path)
		}
	}
	absent := regexp.MustCompile(`Command (\S+) is not executable: No such file`)
	var left []string
	for line := range strings.Lines(strings.NewReplacer(names...).Replace(e.Output)) {
		if m := absent.FindStringSubmatch(line); m == nil || !isExecutable(filepath.Join(root, m[1])) {
			left = append(left, strings.TrimSpace(line))
		}
	}
	if len(left) == 0 {
		return nil
	}
	return &Findings{Output: strings.Join(left, "\n")}
}

// standIn writes a program that does nothing and returns its path.
func standIn(dir string) (string, error) {
	program := filepath.Join(dir, "seedbed")
	return program, os.WriteFile(program, []byte("#!/bin/sh\n"), 0o700)
}

// boot stands for the boot: systemd-analyze orders only what one start leads to, and the services alone do not lead to
// basic.target and with it sockets.target, so that it would not see a cycle that the boot breaks by leaving units out.
func boot() rendered {
	const started = "basic.target seedbed.target"
	return rendered{name: "seedbed-check-boot.target", text: []byte("[Unit]\nRequires=" + started + "\nAfter=" + started + "\n")}
}

// verify writes the units and their drop-ins into dir and runs systemd-analyze over them.
func verify(ctx context.Context, dir string, all []rendered) error {
	args := []string{"verify", "--recursive-errors=yes", "--man=no"}
	for _, u := range append([]rendered{boot()}, all...) {
		file := filepath.Join(dir, u.name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, u.text, 0o644)); err != nil {
			return err
		}
		if filepath.Dir(file) == dir {
			args = append(args, file)
		}
	}
	out, err := exec.CommandContext(ctx, "systemd-analyze", args...).CombinedOutput()
	if said := strings.TrimSpace(string(out)); said != "" {
		return &Findings{Output: said}
	}
	if ctx.Err() != nil {
		err = errors.Join(ctx.Err(), err)
	}
	if err != nil {
		return fmt.Errorf("check units: %w", err)
	}
	return nil
}
