package cmd

import (
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func newManCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:     "man [DIR]",
		Short:   "Write the man pages",
		Long:    "Man writes a man page for every command into a directory, or seedbed's own page to standard output.",
		Example: "  seedbed man | man -l -\n  seedbed man /usr/local/share/man/man1",
		Args:    cobra.MaximumNArgs(1),
		RunE:    func(c *cobra.Command, args []string) error { return runMan(g, c.Root(), args) },
	}
}

func manHeader() *doc.GenManHeader {
	return &doc.GenManHeader{Section: "1", Source: "seedbed", Manual: "seedbed"}
}

func runMan(g *globals, root *cobra.Command, args []string) error {
	root.DisableAutoGenTag = true
	if len(args) == 1 {
		return doc.GenManTree(root, manHeader(), args[0])
	}
	return doc.GenMan(root, manHeader(), g.streams.Out)
}
