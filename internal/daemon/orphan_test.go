package daemon

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"testing"
)

// orphanEnv makes this test program a process that only runs the containerd of
// the machine in the directory that it names.
const orphanEnv = "SEEDBED_TEST_MACHINE"

func TestMain(m *testing.M) {
	if dir := os.Getenv(orphanEnv); dir != "" {
		_ = Run(context.Background(), Options{
			Binary: Binary{Path: dir + "/fake-containerd"}, ConfigFile: dir + "/config.toml", Address: dir + "/state/c.sock",
			Environ: os.Environ(),
		})
		return
	}
	os.Exit(m.Run())
}

// TestParentKilled guards C23: kill -9 of the parent takes containerd with it.
func TestParentKilled(t *testing.T) {
	m := newMachine(t, "")
	m.script("echo $$ > " + m.dir + "/pid\nexec sleep 600\n")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	parent := exec.Command(self)
	parent.Env = append(os.Environ(), orphanEnv+"="+m.dir)
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	child := m.pidOf("pid")
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	eventually(t, "the child's end", func() bool { return !alive(child) })
}

// TestThreadsComeAndGo guards C23 the other way round: threads of this process
// end all the time, and the child does not die of it.
func TestThreadsComeAndGo(t *testing.T) {
	m := newMachine(t, "")
	m.script("echo $$ > " + m.dir + "/pid\nexec sleep 600\n")
	m.start()
	child := m.pidOf("pid")
	for range 200 {
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread() // the thread ends with its goroutine
		}()
		<-done
		runtime.GC()
	}
	if !alive(child) {
		t.Error("the child died with a thread")
	}
	if err := m.stop(); err != nil {
		t.Error(err)
	}
}
