package daemon

import (
	"context"
	"net"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
)

const (
	// firstWait and lastWait bound the pause between two looks at the socket.
	firstWait = 5 * time.Millisecond
	lastWait  = 250 * time.Millisecond
	// callTimeout bounds one version call; a containerd under load may take a while.
	callTimeout = 5 * time.Second
)

// waitServing returns the version of the containerd at address as soon as it
// answers; an error only when ctx ends before.
func waitServing(ctx context.Context, address string) (string, error) {
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		version, err := version(ctx, address)
		if err == nil {
			return version, nil
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(wait):
		}
	}
}

// version asks the containerd at address for its version. It looks whether
// anybody listens before it makes a client, which would try again by itself for ten seconds.
func version(ctx context.Context, address string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", address)
	if err != nil {
		return "", err
	}
	if err := conn.Close(); err != nil {
		return "", err
	}
	client, err := containerd.New(address, containerd.WithTimeout(callTimeout))
	if err != nil {
		return "", err
	}
	defer client.Close()
	v, err := client.Version(ctx)
	return v.Version, err
}
