package units

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
	dir, err := os.MkdirTemp("", "seedbed-units-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if p = p.withDefaults(); !isExecutable(p.Binary) {
		if p.Binary, err = standIn(dir); err != nil {
			return err
		}
	}
	all, err := renderAll(p)
	if err != nil {
		return err
	}
	return verify(ctx, dir, all)
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
	return rendered{"seedbed-check-boot.target", []byte("[Unit]\nRequires=" + started + "\nAfter=" + started + "\n")}
}

// verify writes the units into dir and runs systemd-analyze over them.
func verify(ctx context.Context, dir string, all []rendered) error {
	args := []string{"verify", "--recursive-errors=yes", "--man=no"}
	for _, u := range append([]rendered{boot()}, all...) {
		file := filepath.Join(dir, u.name)
		if err := os.WriteFile(file, u.text, 0o644); err != nil {
			return err
		}
		args = append(args, file)
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
