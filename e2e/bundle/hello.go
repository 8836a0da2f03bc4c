package bundle

import (
	"crypto/sha256"
	_ "embed" // the source of the program in the image
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

//go:embed hello/main.go
var helloSource []byte

// HelloImage is an image that can be run: its only file is a small static
// program that prints "hello from NAME". The program is compiled on the first
// use, with the go command of PATH, and kept in the user's cache directory.
func HelloImage(name string) (Image, error) {
	program, err := helloProgram()
	if err != nil {
		return Image{}, fmt.Errorf("build hello image: %w", err)
	}
	return Image{
		Name:    name,
		Command: []string{"/hello", name},
		Layers:  []Layer{{Files: []File{{Name: "hello", Mode: 0o755, Data: program}}}},
	}, nil
}

func helloProgram() ([]byte, error) {
	key := sha256.Sum256(fmt.Appendf(nil, "%s %s\n%s", runtime.Version(), runtime.GOARCH, helloSource))
	dir := filepath.Join(cacheDir(), "seedbed-bundle")
	path := filepath.Join(dir, fmt.Sprintf("hello-%x", key[:8]))
	if program, err := os.ReadFile(path); err == nil {
		return program, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if err := compileHello(path); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

// cacheDir is the user's cache directory, or that for temporary files for a
// user without one (a service, say).
func cacheDir() string {
	if dir, err := os.UserCacheDir(); err == nil {
		return dir
	}
	return os.TempDir()
}

// compileHello compiles the program next to path and then renames it, so that
// two test binaries that do this at once do not disturb each other.
func compileHello(path string) error {
	dir, err := os.MkdirTemp(filepath.Dir(path), "build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	source, program := filepath.Join(dir, "main.go"), filepath.Join(dir, "hello")
	if err := os.WriteFile(source, helloSource, 0o644); err != nil {
		return err
	}
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w -buildid=", "-o", program, source)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOFLAGS=", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compile hello: %w: %s", err, out)
	}
	return os.Rename(program, path)
}
