// Command containerd-shim-runsc-v1 is gVisor's shim for machines that lack CAP_SYS_RESOURCE, as those that tests run on
// do: the original lowers the OOM score of each shim, and takes it for fatal that the kernel refuses that.
package main

import (
	"context"
	"os"
	"os/exec"
	"syscall"

	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/shim"
	gvisor "gvisor.dev/gvisor/pkg/shim/v1"
	_ "gvisor.dev/gvisor/pkg/shim/v1/plugin" // the task service that the shim serves
)

func main() {
	shim.Run(context.Background(), manager{gvisor.NewShimManager("io.containerd.runsc.v1")})
}

// manager is gVisor's own but for how a shim is started.
type manager struct{ shim.Manager }

// Start starts the shim of one container and returns where it answers. It does what gVisor's does for a container that
// is not grouped with others, and leaves the OOM score alone.
func (m manager) Start(ctx context.Context, id string, opts shim.StartOpts) (shim.BootstrapParams, error) {
	none := shim.BootstrapParams{}
	address, err := shim.SocketAddress(ctx, opts.Address, id, opts.Debug)
	if err != nil {
		return none, err
	}
	socket, err := shim.NewSocket(address)
	if err != nil {
		return none, err
	}
	file, err := socket.File() // the listener itself is never closed: that removes the socket
	if err != nil {
		return none, err
	}
	defer file.Close()
	if err := os.WriteFile("address", []byte(address), 0o644); err != nil { // the shim removes the socket named there
		return none, err
	}
	cmd, err := command(ctx, id, opts)
	if err != nil {
		return none, err
	}
	cmd.ExtraFiles = []*os.File{file}
	if err := cmd.Start(); err != nil {
		return none, err
	}
	if err := shim.WritePidFile("shim.pid", cmd.Process.Pid); err != nil {
		_ = cmd.Process.Kill()
		return none, err
	}
	return shim.BootstrapParams{Version: 2, Address: address, Protocol: "ttrpc"}, nil
}

// command is this program again, as the shim that stays.
func command(ctx context.Context, id string, opts shim.StartOpts) (*exec.Cmd, error) {
	namespace, err := namespaces.NamespaceRequired(ctx)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args := []string{"-namespace", namespace, "-address", opts.Address, "-id", id}
	if opts.Debug {
		args = append(args, "-debug")
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=2")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd, nil
}
