package systemd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// Result is what a command in the machine left.
type Result struct {
	Stdout, Stderr string
	ExitCode       int // 128+N when signal N ended it
}

// OK says whether the command ended with 0.
func (r Result) OK() bool { return r.ExitCode == 0 }

func (r Result) String() string {
	return fmt.Sprintf("exit %d\nstdout: %s\nstderr: %s", r.ExitCode, r.Stdout, r.Stderr)
}

// runTimeout bounds every command in the machine: longer than any start timeout of the units under test.
const runTimeout = 3 * time.Minute

// Try runs a command as a transient unit of the machine, so that it is in the machine's cgroups as any service is, and
// returns how it ended. It fails the test only when the command could not be started at all.
func (m *Machine) Try(command ...string) Result {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), runTimeout)
	defer cancel()
	run := []string{
		"systemd-run", "--quiet", "--pipe", "--wait", "--collect", "--service-type=exec",
		fmt.Sprintf("--unit=e2e-run-%d", m.runs.Add(1)), "--",
	}
	return m.finish(m.enter(ctx, append(run, command...)...), command)
}

// Run is Try for a command that must end with 0: it fails the test otherwise, and returns the command's output.
func (m *Machine) Run(command ...string) string {
	m.t.Helper()
	r := m.Try(command...)
	if !r.OK() {
		m.t.Fatalf("run %s: %v", strings.Join(command, " "), r)
	}
	return r.Stdout
}

// Systemctl runs systemctl directly, not as a unit, so that it works while jobs are queued; it must end with 0.
func (m *Machine) Systemctl(args ...string) string {
	m.t.Helper()
	r := m.TrySystemctl(args...)
	if !r.OK() {
		m.t.Fatalf("systemctl %s: %v", strings.Join(args, " "), r)
	}
	return strings.TrimSpace(r.Stdout)
}

// TrySystemctl is Systemctl for a call that may fail.
func (m *Machine) TrySystemctl(args ...string) Result {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), runTimeout)
	defer cancel()
	command := append([]string{"systemctl", "--no-pager"}, args...)
	return m.finish(m.enter(ctx, command...), command)
}

// Property returns one property of a unit, as `systemctl show --value` prints it.
func (m *Machine) Property(unit, name string) string {
	m.t.Helper()
	return m.Systemctl("show", "--value", "--property="+name, unit)
}

// Entry is one journal entry: field name to value, binary values left out.
type Entry map[string]string

// Journal returns the entries that journalctl selects with the arguments, the oldest first.
func (m *Machine) Journal(args ...string) []Entry {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), runTimeout)
	defer cancel()
	command := append([]string{"journalctl", "--no-pager", "--quiet", "--output=json", "--all"}, args...)
	if r := m.finish(m.enter(ctx, "journalctl", "--sync"), []string{"journalctl", "--sync"}); !r.OK() {
		m.t.Fatalf("journalctl --sync: %v", r)
	}
	r := m.finish(m.enter(ctx, command...), command)
	if r.ExitCode > 1 { // 1: nothing was selected
		m.t.Fatalf("%s: %v", strings.Join(command, " "), r)
	}
	return m.entries(r.Stdout)
}

func (m *Machine) entries(lines string) []Entry {
	m.t.Helper()
	var all []Entry
	for line := range strings.Lines(lines) {
		var raw map[string]any
		if err := json.Unmarshal([]byte(line), &raw); err != nil {
			m.t.Fatalf("read journal entry %q: %v", line, err)
		}
		entry := Entry{}
		for name, value := range raw {
			if text, ok := value.(string); ok {
				entry[name] = text
			}
		}
		all = append(all, entry)
	}
	return all
}

// Messages returns the MESSAGE of each entry.
func Messages(entries []Entry) []string {
	messages := make([]string, len(entries))
	for i, e := range entries {
		messages[i] = e["MESSAGE"]
	}
	return messages
}

// enter returns a command that runs in all of the machine's namespaces.
func (m *Machine) enter(ctx context.Context, command ...string) *exec.Cmd {
	args := []string{
		"--target", strconv.Itoa(m.cmd.Process.Pid), "--all", "--", "env", "-i",
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin", "LANG=C.UTF-8", "SYSTEMD_COLORS=0",
	}
	return exec.CommandContext(ctx, "nsenter", append(args, command...)...)
}

// finish runs cmd to its end and collects what it left.
func (m *Machine) finish(cmd *exec.Cmd, command []string) Result {
	m.t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		m.t.Fatalf("run %s: %v", strings.Join(command, " "), err)
	}
	code := cmd.ProcessState.ExitCode()
	if code < 0 {
		m.t.Fatalf("run %s: %v\nstdout: %s\nstderr: %s", strings.Join(command, " "), err, &stdout, &stderr)
	}
	return Result{Stdout: stdout.String(), Stderr: stderr.String(), ExitCode: code}
}
