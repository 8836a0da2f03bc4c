package main

import (
	"bufio"
	"debug/buildinfo"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// machine is what the numbers were measured on.
type machine struct {
	CPU        string  `json:"cpu"`
	Cores      int     `json:"cores"`
	Memory     uint64  `json:"memory"` // bytes
	Kernel     string  `json:"kernel"`
	FileSystem string  `json:"file_system"` // of corpus and stores
	Containerd string  `json:"containerd"`
	Load       float64 `json:"load"` // average over the minute before; more than a few tenths is noise
}

// loadShift scales the load averages of sysinfo(2): SI_LOAD_SHIFT.
const loadShift = 16

// revision is the commit that a program of Go was built from, with "+changes" when the tree had some; "unknown" for one
// that does not say.
func revision(program string) string {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return "unknown"
	}
	commit, changes := "unknown", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			changes = "+changes"
		}
	}
	return commit + changes
}

// describeMachine says what this machine is, with the file system of dir. What cannot be told is "unknown".
func describeMachine(dir, containerd string) machine {
	m := machine{CPU: cpuModel(), Cores: runtime.NumCPU(), Kernel: "unknown", FileSystem: fileSystem(dir), Containerd: containerd}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		m.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		m.Memory = info.Totalram * uint64(info.Unit)
		m.Load = float64(info.Loads[0]) / (1 << loadShift)
	}
	return m
}

func cpuModel() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// fileSystem is the type of dir's file system, from the mount that has the longest path above it (proc_pid_mounts(5)).
func fileSystem(dir string) string {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "unknown"
	}
	found, kind := "", "unknown"
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		if len(fields) < 3 || len(fields[1]) < len(found) {
			continue
		}
		if point := strings.TrimSuffix(fields[1], "/"); dir == point || strings.HasPrefix(dir, point+"/") {
			found, kind = fields[1], fields[2]
		}
	}
	return kind
}
