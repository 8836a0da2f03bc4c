package embedded

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
)

// containerdCommand returns a command that is the embedded containerd. It is built as a
// program of its own: a test program does not know the versions of its modules.
func containerdCommand(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	program := filepath.Join(t.TempDir(), "containerd")
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", program, "./testdata/containerd")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", build, err, out)
	}
	return exec.CommandContext(t.Context(), program, args...)
}

func TestVersion(t *testing.T) {
	out, err := containerdCommand(t, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(out))
	if len(fields) < 3 || !strings.HasPrefix(fields[2], "v2.") || strings.Contains(fields[2], "unknown") {
		t.Errorf("containerd --version says %q, want the version of go.mod", out)
	}
}

func TestBadConfig(t *testing.T) {
	err := containerdCommand(t, "--config", filepath.Join(t.TempDir(), "absent.toml")).Run()
	exit, ok := err.(*exec.ExitError)
	if !ok || exit.ExitCode() != 1 {
		t.Errorf("containerd with a configuration that is not there: %v, want exit status 1", err)
	}
}

// TestServeAndStop starts the embedded containerd for real.
func TestServeAndStop(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: containerd mounts and changes owners")
	}
	dir, err := os.MkdirTemp("", "sd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	config := "version = 3\nroot = \"" + dir + "/root\"\nstate = \"" + dir + "/state\"\n" +
		"disabled_plugins = [\"io.containerd.internal.v1.opt\", \"io.containerd.nri.v1.nri\", \"io.containerd.grpc.v1.cri\"," +
		" \"io.containerd.cri.v1.images\", \"io.containerd.cri.v1.runtime\"]\n[grpc]\naddress = \"" + dir + "/c.sock\"\n"
	if err := os.WriteFile(dir+"/config.toml", []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	cmd := containerdCommand(t, "--config", dir+"/config.toml")
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitForVersion(t, dir+"/c.sock")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("containerd after TERM: %v, want exit status 0\n%s", err, &log)
	}
	if _, err := os.Stat(dir + "/c.sock"); err == nil {
		t.Error("the socket is still there")
	}
	if !strings.Contains(log.String(), "version=v2.") {
		t.Errorf("containerd's log does not name its version:\n%s", &log)
	}
}

func waitForVersion(t *testing.T, address string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for ctx.Err() == nil {
		if _, err := os.Stat(address); err != nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		client, err := containerd.New(address)
		if err != nil {
			continue
		}
		v, err := client.Version(ctx)
		_ = client.Close()
		if err == nil && strings.HasPrefix(v.Version, "v2.") {
			return
		}
	}
	t.Fatal("the API gave no version of its own within 30 s")
}
