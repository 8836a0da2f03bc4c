// Package embedded is containerd itself, inside of seedbed: the daemon as
// github.com/containerd/containerd/v2/cmd/containerd builds it. It is the only package that
// imports containerd's command and its built-in plugins.
package embedded

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	_ "github.com/containerd/containerd/v2/cmd/containerd/builtins" // the plugins register themselves
	"github.com/containerd/containerd/v2/cmd/containerd/command"
	"github.com/containerd/containerd/v2/version"
)

// Main is containerd's main function: it reads os.Args, writes to the standard
// streams, and exits, with 1 after an error. Signals are containerd's own business
// while it runs. It does not return.
func Main() {
	nameVersion()
	if err := command.App().Run(context.Background(), os.Args); err != nil {
		fmt.Fprintln(os.Stderr, "containerd:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// nameVersion sets containerd's version to that of the module which this program
// is built with, unless the linker has set it (containerd's Makefile does; the
// source says "2.4.2+unknown").
func nameVersion() {
	if !strings.HasSuffix(version.Version, "+unknown") {
		return
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return
	}
	for _, dep := range info.Deps {
		if dep.Path != version.Package {
			continue
		}
		if dep.Replace != nil {
			dep = dep.Replace
		}
		version.Version = dep.Version
	}
}
