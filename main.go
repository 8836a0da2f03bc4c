// Seedbed lays down a node's directory tree, runs containerd on it, and brings
// the node's container images into containerd without a network.
package main

func main() {}
