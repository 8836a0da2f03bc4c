package preseed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"google.golang.org/grpc"
)

// A containerd that is busy and one that hangs look the same to a call that waits for it. So it is
// asked for its version all the time, which it answers whatever its disks do. Only when nothing at
// all comes from it any more is it given up, and every call ends with an error then.
const (
	pingEvery     = time.Second
	leastPatience = 5 * time.Second // whatever Connect's wait is
)

// silence is in the text of errors that tell of it: their type is lost on the way through gRPC.
const silence = "no answer of any kind from containerd"

// patient is a connection that is given up when nothing arrives on it. It waits twice, half of the
// time each, so that a process that was stopped itself does not take that for the other's silence.
type patient struct {
	net.Conn
	half time.Duration
}

func (c patient) Read(p []byte) (n int, err error) {
	for range 2 {
		if err := c.SetReadDeadline(time.Now().Add(c.half)); err != nil {
			return 0, err
		}
		if n, err = c.Conn.Read(p); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
	}
	return 0, fmt.Errorf("%s for %s", silence, 2*c.half)
}

// dialPatiently makes a client's connections ones that end after a time of silence.
func dialPatiently(path string, patience time.Duration) containerd.Opt {
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
		if err != nil {
			return nil, err
		}
		return patient{conn, patience / 2}, nil
	}
	return containerd.WithExtraDialOpts([]grpc.DialOption{grpc.WithContextDialer(dial)})
}

func pingOnline(c *containerd.Client) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := c.Version(ctx)
		return err
	}
}

// keepAsking pings the store until the returned function is called.
func (r *run) keepAsking(ctx context.Context) (stop func()) {
	if r.store.Ping == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(pingEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				_ = r.store.Ping(ctx)
			}
		}
	}()
	return func() { cancel(); <-done }
}

// silent reports whether an error tells of containerd's silence.
func silent(err error) bool { return strings.Contains(err.Error(), silence) }
