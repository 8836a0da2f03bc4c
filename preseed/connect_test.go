package preseed_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"seedbed/e2e/containerd"
	"seedbed/preseed"
)

// TestConnectWaits is P21: whatever is wrong with the socket, one deadline covers it.
func TestConnectWaits(t *testing.T) {
	const wait = 400 * time.Millisecond
	cases := map[string]func(t *testing.T, path string){
		"absent":       func(*testing.T, string) {},
		"stale":        func(t *testing.T, path string) { listen(t, path).Close() },
		"regular file": func(t *testing.T, path string) { must(t, os.WriteFile(path, nil, 0o666)) },
		"not serving":  func(t *testing.T, path string) { accept(t, listen(t, path)) },
	}
	for name, prepare := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			prepare(t, path)
			begin := time.Now()
			_, err := preseed.Connect(t.Context(), path, wait)
			took := time.Since(begin)
			var connect *preseed.ConnectError
			if !errors.Is(err, preseed.ErrUnavailable) || !errors.As(err, &connect) || connect.Hint() == "" {
				t.Errorf("error %v", err)
			}
			if name == "not serving" && !strings.HasSuffix(err.Error(), "it listens and does not answer") {
				t.Errorf("error %v", err)
			}
			if took < wait || took > wait+1500*time.Millisecond {
				t.Errorf("took %s, want %s", took, wait)
			}
		})
	}
}

// TestConnectPathTooLong: no wait makes a path shorter.
func TestConnectPathTooLong(t *testing.T) {
	begin := time.Now()
	_, err := preseed.Connect(t.Context(), "/"+strings.Repeat("s", 107), time.Minute)
	if !errors.Is(err, preseed.ErrUnavailable) || !strings.Contains(err.Error(), "108 bytes") {
		t.Errorf("error %v", err)
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("took %s", took)
	}
}

// TestConnectWhenContainerdComesLate is the rest of P21.
func TestConnectWhenContainerdComesLate(t *testing.T) {
	d := containerd.New(t)
	connected := make(chan error)
	go func() {
		c, err := preseed.Connect(t.Context(), d.Address, 30*time.Second)
		if err == nil {
			err = c.Close()
		}
		connected <- err
	}()
	time.Sleep(time.Second)
	d.Launch(t)
	must(t, <-connected)
}

// TestConnectAddresses is P22: all three forms of an address work.
func TestConnectAddresses(t *testing.T) {
	d := containerd.Start(t)
	t.Chdir(filepath.Dir(d.Address))
	for _, address := range []string{d.Address, "unix://" + d.Address, filepath.Base(d.Address), "./" + filepath.Base(d.Address)} {
		c, err := preseed.Connect(t.Context(), address, time.Second)
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		must(t, c.Close())
	}
	var option *preseed.OptionError
	for _, address := range []string{"", "tcp://127.0.0.1:1"} {
		if _, err := preseed.Connect(t.Context(), address, time.Second); !errors.As(err, &option) {
			t.Errorf("%q: %v", address, err)
		}
	}
}

// TestConnectWithoutPermission is P23: it does not wait, and names user and path. It runs itself as
// another user.
func TestConnectWithoutPermission(t *testing.T) {
	if path := os.Getenv("SEEDBED_TEST_SOCKET"); path != "" {
		_, err := preseed.Connect(t.Context(), path, time.Minute)
		if !errors.Is(err, fs.ErrPermission) || errors.Is(err, preseed.ErrUnavailable) {
			t.Errorf("error %v", err)
		}
		if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "uid 65534") {
			t.Errorf("error %v, want one with the path and the user", err)
		}
		return
	}
	dir := asNobodyDir(t)
	listen(t, filepath.Join(dir, "s"))
	must(t, os.Chmod(filepath.Join(dir, "s"), 0o660))
	asNobody(t, dir, "SEEDBED_TEST_SOCKET="+filepath.Join(dir, "s"))
}

// asNobodyDir returns a directory that other users can enter, which t.TempDir is not.
func asNobodyDir(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to become another user")
	}
	dir, err := os.MkdirTemp("", "seedbed-nobody-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	return dir
}

// asNobody runs the test that calls it again, as a user who owns nothing.
func asNobody(t *testing.T, dir, env string) {
	t.Helper()
	program := copyProgram(t, dir)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), env)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// copyProgram puts this test program where every user can run it.
func copyProgram(t *testing.T, dir string) string {
	t.Helper()
	from, err := os.Open("/proc/self/exe")
	must(t, err)
	defer from.Close()
	to, err := os.OpenFile(filepath.Join(dir, "program"), os.O_CREATE|os.O_WRONLY, 0o755)
	must(t, err)
	_, err = io.Copy(to, from)
	must(t, err)
	must(t, to.Close())
	return to.Name()
}

// listen makes a socket whose file stays when the listener is closed.
func listen(t *testing.T, path string) *net.UnixListener {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	must(t, err)
	l.SetUnlinkOnClose(false)
	t.Cleanup(func() { l.Close() })
	return l
}

// accept takes connections and says nothing on them.
func accept(t *testing.T, l *net.UnixListener) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			if _, err := l.Accept(); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
}
