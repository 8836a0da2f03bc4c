package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/protobuf/types"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// CRIError says that containerd answers and its CRI plugin never will: it was not loaded.
type CRIError struct{ Err error }

func (e *CRIError) Error() string {
	return fmt.Sprintf("start containerd: its CRI plugin is configured and not loaded: %v", e.Err)
}

// Unwrap returns the cause.
func (e *CRIError) Unwrap() error { return e.Err }

// Hint says what to do about it.
func (e *CRIError) Hint() string {
	return "mend the cause, or take the plugin's section out of the configuration"
}

// wantsCRI reports whether the configuration has the CRI plugin.
func wantsCRI(o Options) (bool, error) {
	c, err := loadConfig(o)
	if err != nil {
		return false, err
	}
	return c.hasCRI(), nil
}

// waitCRI returns as soon as the CRI plugin of the containerd at address answers.
// The error is a *[CRIError] when it never will, else that of ctx.
func waitCRI(ctx context.Context, address string) error {
	client, err := containerd.New(address, containerd.WithTimeout(callTimeout))
	if err != nil {
		return err
	}
	defer client.Close()
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		err := askCRI(ctx, client)
		switch {
		case err == nil:
			return nil
		case status.Code(err) == codes.Unimplemented:
			return &CRIError{whyNoCRI(ctx, client, err)}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// askCRI asks the CRI plugin for its version, as the kubelet does first. The call is made
// with empty messages, which are those of any call whose fields nobody needs.
func askCRI(ctx context.Context, client *containerd.Client) error {
	conn, ok := client.Conn().(grpc.ClientConnInterface)
	if !ok {
		return errors.New("ask the CRI plugin: there is no connection")
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return conn.Invoke(ctx, "/runtime.v1.RuntimeService/Version", &types.Empty{}, &types.Empty{})
}

// whyNoCRI returns what containerd says of the plugin, or err.
func whyNoCRI(ctx context.Context, client *containerd.Client, err error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	found, askErr := client.IntrospectionService().Plugins(ctx, "type==io.containerd.grpc.v1,id==cri")
	if askErr != nil || len(found.Plugins) == 0 || found.Plugins[0].InitErr == nil {
		return err
	}
	return errors.New(found.Plugins[0].InitErr.Message)
}

// watch calls Alive as long as containerd answers a health call in time, until ctx
// ends. Asked three times in each interval, one answer that is late does no harm.
func (s *supervisor) watch(ctx context.Context) {
	if s.Watchdog <= 0 {
		return
	}
	every := s.Watchdog / 3
	client, err := containerd.New(s.Address, containerd.WithTimeout(every))
	if err != nil {
		return // nobody calls Alive then, which is what the watchdog is for
	}
	defer client.Close()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for well := true; ; {
		healthy := isHealthy(ctx, client, every)
		switch {
		case healthy:
			s.Alive()
		case ctx.Err() == nil && well:
			s.Status(fmt.Sprintf("containerd does not answer a health call within %v", every))
		}
		if healthy && !well {
			s.Status("containerd answers again at " + s.Address)
		}
		well = healthy
		select {
		case <-ctx.Done():
			return
		case <-s.child.exited:
			return
		case <-tick.C:
		}
	}
}

func isHealthy(ctx context.Context, client *containerd.Client, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	serving, err := client.IsServing(ctx)
	return err == nil && serving
}
