package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// profile is where the time of one run goes. What a tool is missing for is left out.
type profile struct {
	Read  traffic  `json:"read"`  // from files
	Write traffic  `json:"write"` // to files
	Send  traffic  `json:"send"`  // to sockets: the daemon's
	Sync  traffic  `json:"sync"`  // fsync and its kin
	User  *cpuUser `json:"user,omitempty"`
}

// traffic is what one kind of system call did.
type traffic struct {
	Calls   int     `json:"calls"`
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"` // inside of the calls, over all threads, under strace
}

func (t traffic) String() string {
	switch {
	case t.Calls == 0:
		return "–"
	case t.Bytes == 0:
		return fmt.Sprintf("%.3f (%d calls)", t.Seconds, t.Calls)
	}
	return fmt.Sprintf("%.3f (%d MiB, %d calls)", t.Seconds, t.Bytes/mib, t.Calls)
}

// cpuUser are shares of a process's CPU time outside of the kernel, by the function that perf found it in; they add up
// to 1.
type cpuUser struct {
	Hash       float64 `json:"hash"`       // sha256
	Decompress float64 `json:"decompress"` // gzip, zstd and their checksums
	Other      float64 `json:"other"`
}

// cpu splits user CPU seconds.
func (p *profile) cpu(user float64) string {
	if p.User == nil {
		return "no perf"
	}
	return fmt.Sprintf("%.3f / %.3f / %.3f", user*p.User.Hash, user*p.User.Decompress, user*p.User.Other)
}

// traceOnline profiles an import into the running daemon, from the state that the row's runs begin with.
func (b *bench) traceOnline(form string, prepare func(context.Context) error) func(context.Context, *result) error {
	return func(ctx context.Context, r *result) (err error) {
		r.Breakdown, err = b.profile(ctx, prepare, b.importCommand(b.online, form))
		return err
	}
}

// traceOffline profiles an import into a root without a daemon.
func (b *bench) traceOffline(form string, flags ...string) func(context.Context, *result) error {
	return func(ctx context.Context, r *result) (err error) {
		r.Breakdown, err = b.profile(ctx, b.bare, b.offlineCommand(form, flags...))
		return err
	}
}

// profile runs a command twice more, under strace and under perf.
func (b *bench) profile(ctx context.Context, prepare func(context.Context) error, command []string) (*profile, error) {
	p := &profile{}
	if err := prepare(ctx); err != nil {
		return nil, err
	}
	calls, err := b.strace(ctx, tracedCalls, command)
	if errors.Is(err, exec.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, c := range calls {
		if t := p.kind(c); t != nil {
			t.Calls++
			t.Bytes += max(0, c.bytes())
			t.Seconds += c.seconds
		}
	}
	if err := prepare(ctx); err != nil {
		return nil, err
	}
	p.User, err = b.sampleUser(ctx, command)
	return p, err
}

const tracedCalls = "read,pread64,preadv,readv,write,pwrite64,writev,pwritev,sendto,sendmsg,copy_file_range,sendfile,fsync,fdatasync,syncfs,sync,sync_file_range"

// kind returns the traffic that a call belongs to, nil for none.
func (p *profile) kind(c call) *traffic {
	file := strings.HasPrefix(c.target, "/") && !strings.HasPrefix(c.target, "/dev/") && !strings.HasPrefix(c.target, "/proc/") && !strings.HasPrefix(c.target, "/sys/")
	switch {
	case strings.Contains(c.name, "sync"):
		return &p.Sync
	case strings.Contains(c.name, "read") && file:
		return &p.Read
	case strings.Contains(c.name, "read"):
		return nil
	case file:
		return &p.Write
	case strings.HasPrefix(c.target, "socket:") || strings.HasPrefix(c.target, "UNIX"):
		return &p.Send
	}
	return nil
}

// call is one system call as strace wrote it.
type call struct {
	name    string
	target  string // what its first argument, a descriptor, stands for; "" for another argument
	result  string
	seconds float64
	line    string
}

// bytes is the call's result as a number, -1 for another one.
func (c call) bytes() int64 {
	n, err := strconv.ParseInt(c.result, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

var callLine = regexp.MustCompile(`^(\w+)\((?:(?:\d+|AT_FDCWD)<([^>]*)>)?.*\) += (\S+).*?(?: <([\d.]+)>)?$`)

func parseCall(line string) (call, bool) {
	m := callLine.FindStringSubmatch(line)
	if m == nil {
		return call{}, false
	}
	seconds, _ := strconv.ParseFloat(m[4], 64)
	return call{name: m[1], target: m[2], result: m[3], seconds: seconds, line: line}, true
}

// strace runs a command under strace and returns the calls that it was to look for. Each thread has a file of its own,
// so that no call is cut into two. Calls that are not looked for run undisturbed (--seccomp-bpf).
func (b *bench) strace(ctx context.Context, wanted string, command []string) ([]call, error) {
	dir, err := os.MkdirTemp(b.disk, "strace-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	tracer := []string{"strace", "-ff", "--seccomp-bpf", "-y", "-T", "-s", "0", "-e", "signal=none", "-e", "trace=?" + strings.ReplaceAll(wanted, ",", ",?"), "-o", filepath.Join(dir, "thread")}
	if _, err := execute(ctx, append(tracer, command...)); err != nil {
		return nil, err
	}
	threads, err := filepath.Glob(filepath.Join(dir, "thread.*"))
	if err != nil {
		return nil, err
	}
	var calls []call
	for _, thread := range threads {
		if calls, err = readCalls(thread, calls); err != nil {
			return nil, err
		}
	}
	return calls, nil
}

func readCalls(path string, calls []call) ([]call, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if c, ok := parseCall(lines.Text()); ok {
			calls = append(calls, c)
		}
	}
	return calls, lines.Err()
}

var (
	hashSymbol       = regexp.MustCompile(`sha256|sha512`)
	decompressSymbol = regexp.MustCompile(`flate|gzip|zstd|huff0|fse\.|crc32|xxh`)
)

// sampleUser tells from a thousand samples a second where a command's user CPU goes; nil where perf is missing or not
// allowed.
func (b *bench) sampleUser(ctx context.Context, command []string) (*cpuUser, error) {
	data := filepath.Join(b.disk, "perf.data")
	defer os.Remove(data)
	record := append([]string{"perf", "record", "-q", "-e", "cpu-clock:u", "-F", "997", "-o", data, "--"}, command...)
	if _, err := execute(ctx, record); err != nil {
		return nil, nil
	}
	out, err := exec.CommandContext(ctx, "perf", "script", "-i", data, "-F", "ip,sym").Output()
	if err != nil {
		return nil, nil
	}
	u, total := &cpuUser{}, 0.0
	for symbol := range strings.Lines(string(out)) {
		if strings.TrimSpace(symbol) == "" {
			continue
		}
		total++
		switch {
		case hashSymbol.MatchString(symbol):
			u.Hash++
		case decompressSymbol.MatchString(symbol):
			u.Decompress++
		default:
			u.Other++
		}
	}
	if total == 0 {
		return nil, nil
	}
	u.Hash, u.Decompress, u.Other = u.Hash/total, u.Decompress/total, u.Other/total
	return u, nil
}
