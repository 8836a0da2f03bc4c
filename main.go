// Seedbed prepares a node before anything else runs on it: it places the node's
// directory tree, runs containerd on it, and brings the node's container images
// into containerd without a network.
package main

import (
	"os"
	"path/filepath"

	"seedbed/cmd"
	"seedbed/internal/daemon/embedded"
)

func main() {
	if filepath.Base(os.Args[0]) == "containerd" {
		os.Exit(embedded.Main())
	}
	os.Exit(cmd.Main(os.Args[1:]))
}
