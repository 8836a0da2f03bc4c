package preseed

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"
)

// Pauses between two attempts to reach the socket, and what an attempt is given at least.
const (
	shortest   = 500 * time.Millisecond
	firstPause = 10 * time.Millisecond
	lastPause  = 250 * time.Millisecond
)

// maxSocketPath is the longest path of a socket in bytes: unix(7).
const maxSocketPath = 107

// ConnectError says why containerd cannot be reached. It is [ErrUnavailable], or
// [fs.ErrPermission] when the socket is there and this user may not use it.
type ConnectError struct {
	Address string        // absolute path of the socket
	Waited  time.Duration // how long was tried
	User    string        // who may not, for want of permission
	Err     error         // what the last attempt said
}

func (e *ConnectError) Error() string {
	if e.denied() {
		return fmt.Sprintf("connect to containerd at %q: no permission for user %s", e.Address, e.User)
	}
	waited := ""
	if e.Waited > 0 {
		waited = fmt.Sprintf(" after %s", e.Waited.Round(100*time.Millisecond))
	}
	return fmt.Sprintf("connect to containerd at %q: not available%s: %s", e.Address, waited, e.reason())
}

func (e *ConnectError) denied() bool { return errors.Is(e.Err, fs.ErrPermission) }

// reason is the last attempt's error without the address, which is said already.
func (e *ConnectError) reason() string {
	switch {
	case errors.Is(e.Err, fs.ErrNotExist):
		return "no such socket"
	case errors.Is(e.Err, syscall.ECONNREFUSED):
		return "nobody listens there"
	case errors.Is(e.Err, errNotServing):
		return "it listens and does not answer"
	}
	return e.Err.Error()
}

// Unwrap returns the attempt's error and, unless permission is missing, ErrUnavailable.
func (e *ConnectError) Unwrap() []error {
	if e.denied() {
		return []error{e.Err}
	}
	return []error{ErrUnavailable, e.Err}
}

// Hint says what to try.
func (e *ConnectError) Hint() string {
	if e.denied() {
		return "run as root, or as a member of the group that owns " + e.Address
	}
	return "start containerd (seedbed containerd run), name its socket with --address, wait longer with --wait, or use --offline"
}

var errNotServing = errors.New("not serving")

// Connect returns a client of the containerd at address, which may be "unix:///path", an absolute
// or a relative path. It waits, for at most wait in all, for a socket that is absent, stale or
// refuses, and for containerd to answer on it. Zero means one attempt. Missing permission ends the
// wait at once. The error is a [*ConnectError], or ctx's own.
//
// The client's calls end with an error that tells of an unavailable containerd when nothing at all
// comes from it for as long as wait, and for 5 seconds at least. Whoever makes a call that takes
// longer has to ask for something small meanwhile, as [Import] and [Verify] do: a containerd that
// works is never given up then, however slow it is.
func Connect(ctx context.Context, address string, wait time.Duration) (*containerd.Client, error) {
	path, err := socketPath(address)
	if err != nil {
		return nil, err
	}
	if len(path) > maxSocketPath {
		return nil, &ConnectError{Address: path, Err: fmt.Errorf("the path is %d bytes long, a socket's may have %d", len(path), maxSocketPath)}
	}
	begin := time.Now()
	deadline := begin.Add(wait)
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		c, err := attempt(ctx, path, max(time.Until(deadline), shortest), max(wait, leastPatience))
		if err == nil {
			return c, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if errors.Is(err, fs.ErrPermission) {
			return nil, &ConnectError{Address: path, User: userName(), Err: err}
		}
		left := time.Until(deadline)
		if left <= 0 {
			return nil, &ConnectError{Address: path, Waited: min(time.Since(begin), wait), Err: err}
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(min(pause, left)):
		}
	}
}

// socketPath makes of an address the bare absolute path that containerd's client wants.
func socketPath(address string) (string, error) {
	path := strings.TrimPrefix(address, "unix://")
	if path == "" || strings.Contains(path, "://") {
		return "", &OptionError{Option: "address", Value: address, Err: errors.New("not a unix socket")}
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("read address %q: %w", address, err)
	}
	return path, nil
}

// attempt dials first, because containerd's client hides what the socket says behind a wait of 10
// seconds, and then asks for the version.
func attempt(ctx context.Context, path string, timeout, patience time.Duration) (*containerd.Client, error) {
	conn, err := (&net.Dialer{Timeout: timeout}).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	conn.Close()
	c, err := containerd.New(path, dialPatiently(path, patience))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if _, err := c.Version(ctx); err != nil {
		c.Close()
		if errdefs.IsUnavailable(err) || ctx.Err() != nil { // the time is up: gRPC has words of its own for that
			err = errNotServing
		}
		return nil, err
	}
	return c, nil
}

func userName() string {
	uid := os.Geteuid()
	if u, err := user.LookupId(fmt.Sprint(uid)); err == nil {
		return fmt.Sprintf("%s (uid %d)", u.Username, uid)
	}
	return fmt.Sprintf("uid %d", uid)
}
