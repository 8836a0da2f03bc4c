package daemon

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// name is what containerd is called, as a file and as argv[0].
const name = "containerd"

// EmbeddedName asks [Find] for the containerd inside of this program.
const EmbeddedName = "embedded"

// Binary is a containerd that can be run.
type Binary struct {
	// Path of the program; /proc/self/exe when it is embedded.
	Path string
	// Embedded says that it is this very program, started under containerd's name.
	Embedded bool
}

// String returns the path, or "embedded".
func (b Binary) String() string {
	if b.Embedded {
		return EmbeddedName
	}
	return b.Path
}

// Reason is why a program cannot be run.
type Reason string

// The reasons of a [BinaryError].
const (
	Absent            Reason = "there is no such file"
	IsDirectory       Reason = "it is a directory"
	NotExecutable     Reason = "it is not executable"
	NotProgram        Reason = "it is neither an ELF program nor a script"
	WrongArchitecture Reason = "it is made for another machine"
	Unreadable        Reason = "it cannot be looked at"
	Refused           Reason = "the system does not start it"
)

// BinaryError says that a containerd cannot be run, and why. By convention of
// the shell, a caller exits with 127 for [Absent] and with 126 for the others.
type BinaryError struct {
	Path   string
	Reason Reason
	// Detail is the program's machine for WrongArchitecture.
	Detail string
	// Err is the cause, if the system named one.
	Err error
}

func (e *BinaryError) Error() string {
	s := fmt.Sprintf("run containerd %q: %s", e.Path, e.Reason)
	if e.Detail != "" {
		s += " (" + e.Detail + ")"
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *BinaryError) Unwrap() error { return e.Err }

// ExitCode returns 127 when the program is absent and 126 when it cannot be run.
func (e *BinaryError) ExitCode() int {
	if e.Reason == Absent {
		return 127
	}
	return 126
}

// Hint says what to do about it.
func (e *BinaryError) Hint() string {
	switch e.Reason {
	case NotExecutable:
		return fmt.Sprintf("chmod +x %q", e.Path)
	case WrongArchitecture:
		return "install the containerd that is built for " + runtime.GOARCH
	}
	return "name another one with --containerd PATH, or the one inside of seedbed with --containerd " + EmbeddedName
}

// Find returns the containerd to run: the explicit one if it is given
// ([EmbeddedName] or a path), else the one in the directory systemBin, else the
// first in path, a list of directories as PATH holds it, else the embedded one. One that is given or lies
// in systemBin but cannot be run is a *[BinaryError]: it is not passed over. In path one is
// passed over that cannot be run, or is too old to read config, as a distribution's may be.
func Find(explicit, systemBin, path string, config []byte) (Binary, error) {
	if explicit == EmbeddedName {
		return embedded(), nil
	}
	if explicit != "" {
		file, err := filepath.Abs(explicit)
		if err != nil {
			return Binary{Path: explicit}, &BinaryError{Path: explicit, Reason: Unreadable, Err: err}
		}
		return Binary{Path: file}, checkBinary(file)
	}
	if systemBin != "" {
		b := Binary{Path: filepath.Join(systemBin, name)}
		var absent *BinaryError
		err := checkBinary(b.Path)
		if !errors.As(err, &absent) || absent.Reason != Absent {
			return b, err
		}
	}
	c, err := parseConfig("", config)
	for _, dir := range filepath.SplitList(path) {
		file := filepath.Join(dir, name)
		if filepath.IsAbs(file) && checkBinary(file) == nil && (err != nil || checkVersion(file, c, "") == nil) {
			return Binary{Path: file}, nil
		}
	}
	return embedded(), nil
}

func embedded() Binary { return Binary{Path: "/proc/self/exe", Embedded: true} }

// checkBinary returns a *BinaryError unless path is a program for this machine.
func checkBinary(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &BinaryError{Path: path, Reason: Absent}
	case err != nil:
		return &BinaryError{Path: path, Reason: Unreadable, Err: err}
	case info.IsDir():
		return &BinaryError{Path: path, Reason: IsDirectory}
	case !info.Mode().IsRegular():
		return &BinaryError{Path: path, Reason: NotProgram}
	case info.Mode()&0o111 == 0:
		return &BinaryError{Path: path, Reason: NotExecutable}
	}
	return checkMachine(path)
}

// checkMachine looks at what exec would say "exec format error" to. A file that
// may be run but not read is left to exec.
func checkMachine(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return &BinaryError{Path: path, Reason: Unreadable, Err: err}
	}
	defer f.Close()
	magic := make([]byte, 2)
	if _, err := io.ReadFull(f, magic); err == nil && string(magic) == "#!" {
		return nil
	}
	program, err := elf.NewFile(f)
	if err != nil {
		return &BinaryError{Path: path, Reason: NotProgram}
	}
	if want, known := machines()[runtime.GOARCH]; known && program.Machine != want {
		return &BinaryError{Path: path, Reason: WrongArchitecture, Detail: fmt.Sprintf("%v: expected %v", program.Machine, want)}
	}
	return nil
}

func machines() map[string]elf.Machine {
	return map[string]elf.Machine{
		"386": elf.EM_386, "amd64": elf.EM_X86_64, "arm": elf.EM_ARM, "arm64": elf.EM_AARCH64,
		"ppc64le": elf.EM_PPC64, "riscv64": elf.EM_RISCV, "s390x": elf.EM_S390, "loong64": elf.EM_LOONGARCH,
	}
}
