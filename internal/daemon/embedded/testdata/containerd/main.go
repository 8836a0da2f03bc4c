// Containerd is the embedded containerd and nothing else.
package main

import (
	"os"

	"seedbed/internal/daemon/embedded"
)

func main() { os.Exit(embedded.Main()) }
