package cmd_test

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"seedbed/e2e/bundle"
	"seedbed/e2e/containerd"
)

// random returns an image with a layer of random bytes: it takes an import a while.
func random(size int) bundle.Image {
	data := make([]byte, size)
	for i, seed := 0, uint32(1); i < len(data); i++ {
		seed = seed*1664525 + 1013904223
		data[i] = byte(seed >> 24)
	}
	return bundle.Image{Name: "example.com/random:1", Layers: []bundle.Layer{{Files: []bundle.File{{Name: "a", Data: data}}, Compression: bundle.None}}}
}

// importing is an import that has come as far as its first blob: the bundle before is no image, and
// is done with before anything is copied.
func importing(t *testing.T, d *containerd.Daemon, wait string) (*exec.Cmd, *bytes.Buffer, *lines) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "bundles")
	for name, data := range map[string][]byte{"a-bad.tar": []byte("bad"), "b.tar": bundle.OCI(random(128 * mib)).Bytes()} {
		path := filepath.Join(dir, "k8s.io", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run := seedbed(t, "preseed", "import", dir, "-a", d.Address, "--wait", wait, "--progress", "json")
	out := &bytes.Buffer{}
	run.Stdout = out
	stderr, err := run.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	log := newLines(stderr)
	log.waitFor(t, `a-bad.tar","namespace":"k8s.io","status":"failed"`)
	return run, out, log
}

// finished waits for an import and returns its exit code.
func finished(t *testing.T, run *exec.Cmd, log *lines) int {
	t.Helper()
	<-log.ended
	_ = run.Wait() // the exit code says it
	return run.ProcessState.ExitCode()
}

// TestImportThroughRestart: containerd is killed half-way and started again. The import waits for it,
// goes on, and has imported everything.
func TestImportThroughRestart(t *testing.T) {
	d := containerd.Start(t)
	run, out, log := importing(t, d, "30s")
	d.Kill()
	log.waitFor(t, "containerd went away: waiting for it")
	d.Launch(t)
	if code := finished(t, run, log); code != 1 || !strings.Contains(out.String(), "\nimported    k8s.io/b.tar\n") {
		t.Errorf("exit code %d, want 1 for the bad bundle\n%s%s", code, out, log)
	}
}

// TestImportOfHangingContainerd: one that is stopped half-way and never goes on ends the import, with
// the report and with the code for a containerd that cannot be reached.
func TestImportOfHangingContainerd(t *testing.T) {
	d := containerd.Start(t)
	run, out, log := importing(t, d, "1s")
	d.Signal(t, syscall.SIGSTOP)
	code := finished(t, run, log)
	if code != 69 || !strings.Contains(out.String(), "b.tar: containerd does not answer any more: ") {
		t.Errorf("exit code %d, want 69\n%s", code, out)
	}
	if !strings.Contains(log.String(), "it listens and does not answer\nseedbed: hint: ") {
		t.Errorf("standard error:\n%s", log)
	}
}

// importSlowly imports an archive from a pipe that brings its second half later than progress is
// shown for the first time. It returns standard error.
func importSlowly(t *testing.T, env []string, args ...string) string {
	t.Helper()
	archive := bundle.OCI(random(8 * mib)).Bytes()
	run := seedbed(t, append([]string{"preseed", "import", "-", "-n", "k8s.io", "--offline", "--containerd-root", t.TempDir()}, args...)...)
	run.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	run.Stderr = &stderr
	in, err := run.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	half := len(archive) / 2
	_, err = in.Write(archive[:half])
	time.Sleep(1500 * time.Millisecond)
	if _, last := io.Copy(in, bytes.NewReader(archive[half:])); err == nil {
		err = last
	}
	in.Close()
	if waited := run.Wait(); err != nil || waited != nil {
		t.Fatalf("import: %v, %v\n%s", err, waited, &stderr)
	}
	return stderr.String()
}

// TestProgressLines: what a log gets of a long import.
func TestProgressLines(t *testing.T) {
	line := regexp.MustCompile(`(?m)^seedbed: 0 of 1 bundles, [1-9][0-9.]* of [1-9][0-9.]* MiB$`)
	if got := importSlowly(t, nil, "--progress", "plain"); !line.MatchString(got) {
		t.Errorf("--progress plain wrote %q", got)
	}
	for _, silent := range [][]string{{"--progress", "none"}, {"--quiet"}} {
		if got := importSlowly(t, nil, silent...); got != "" {
			t.Errorf("%q wrote %q", silent, got)
		}
	}
}

// TestProgressJSON: every line is one JSON document; the sums grow, and end with all that there is.
func TestProgressJSON(t *testing.T) {
	var last struct {
		Event, Bundle, Namespace, Status string
		BundlesDone                      int `json:"bundles_done"`
		Bundles                          int
		BytesDone                        int64 `json:"bytes_done"`
		Bytes                            int64
	}
	var events []string
	for line := range strings.Lines(importSlowly(t, nil, "--progress", "json")) {
		before := last.BytesDone
		if err := json.Unmarshal([]byte(line), &last); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if events = append(events, last.Event); last.BytesDone < before {
			t.Errorf("%d bytes after %d", last.BytesDone, before)
		}
	}
	if !slices.Contains(events, "copy") || last.Event != "bundle" || last.Status != "imported" || last.Namespace != "k8s.io" ||
		last.BundlesDone != 1 || last.Bundles != 1 || last.Bytes < 8*mib || last.BytesDone != last.Bytes {
		t.Errorf("events %q, the last %+v", events, last)
	}
}

// TestProgressStatus: the service manager gets a status and more time while bytes move, and READY=1
// with the summary at the end.
func TestProgressStatus(t *testing.T) {
	socket, arrived := listen(t)
	importSlowly(t, []string{"NOTIFY_SOCKET=" + socket}, "--quiet")
	all := waitFor(t, arrived, "READY=1")
	status := regexp.MustCompile(`^STATUS=0 of 1 bundles, [1-9][0-9.]* of [1-9][0-9.]* MiB$`)
	moved := slices.IndexFunc(all, func(n notification) bool { return status.MatchString(n.lines[0]) })
	if moved < 0 || !slices.Contains(all[moved+1].lines, "EXTEND_TIMEOUT_USEC=30000000") {
		t.Errorf("notifications: %v", all)
	}
	if ready := all[len(all)-1].lines; !slices.Contains(ready, "STATUS=1 bundle: 1 imported, 0 unchanged, 0 skipped, 0 failed") {
		t.Errorf("at the end: %q", ready)
	}
}
