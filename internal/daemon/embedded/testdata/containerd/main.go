// Containerd is the embedded containerd and nothing else.
package main

import "seedbed/internal/daemon/embedded"

func main() { embedded.Main() }
