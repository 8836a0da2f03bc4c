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
// streams, and returns the exit code, 0, or 1 after an error. Signals are
// containerd's own business while it runs.
func Main() int {
	nameProcess()
	nameVersion()
	if err := command.App().Run(context.Background(), os.Args); err != nil {
		fmt.Fprintln(os.Stderr, "containerd:", err)
		return 1
	}
	return 0
}

// nameProcess makes top, pgrep and fuser show the process as containerd: the kernel
// has named it after the file, /proc/self/exe (proc_pid_comm(5)). It is for people
// only, so that an error is none.
func nameProcess() {
	_ = os.WriteFile("/proc/self/comm", []byte("containerd"), 0)
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
