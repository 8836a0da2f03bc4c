package cmd_test

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/rogpeppe/go-internal/testscript"

	"seedbed/cmd"
	"seedbed/e2e/bundle"
	"seedbed/internal/daemon/embedded"
)

// TestMain makes the test binary be seedbed, the containerd inside it, and the
// generator of bundles, each under its own name.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"seedbed":    func() { os.Exit(cmd.Main(os.Args[1:])) },
		"containerd": func() { os.Exit(embedded.Main()) },
		"bundle":     func() { os.Exit(writeBundle(os.Args[1:])) },
		"huge":       func() { os.Exit(writeHuge(os.Args[1:])) },
		"peak":       func() { os.Exit(printPeak(os.Args[1:])) },
		"jsondocs":   func() { os.Exit(countDocuments(os.Args[1])) },
	})
}

// TestScripts runs the command line as a user types it; each script's blocks
// name the case that they guard.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Condition: func(name string) (bool, error) {
			if name == "root" {
				return os.Geteuid() == 0, nil
			}
			return false, fmt.Errorf("unknown condition %q", name)
		},
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
			return nil
		},
	})
}

// countDocuments is `jsondocs FILE`: it prints how many JSON documents a file holds.
func countDocuments(file string) int {
	f, err := os.Open(file)
	if err != nil {
		fmt.Fprintln(os.Stderr, "jsondocs:", err)
		return 1
	}
	defer f.Close()
	documents := json.NewDecoder(f)
	for n := 0; ; n++ {
		switch err := documents.Decode(new(any)); {
		case err == io.EOF:
			fmt.Println(n)
			return 0
		case err != nil:
			fmt.Fprintln(os.Stderr, "jsondocs:", err)
			return 1
		}
	}
}

// writeBundle is `bundle FORM FILE NAME`: it writes one bundle in one of the
// forms below.
func writeBundle(args []string) int {
	form, file, name := args[0], args[1], args[2]
	image := bundle.Good(name)
	oci := bundle.OCI(image)
	layer := bundle.Member(image.Build().Layers[0].Digest)
	forms := map[string]func() []byte{
		"oci":       oci.Bytes,
		"docker":    bundle.Docker(image).Bytes,
		"gzip":      func() []byte { return bundle.Compress(oci.Bytes(), bundle.Gzip) },
		"zstd":      func() []byte { return bundle.Compress(oci.Bytes(), bundle.Zstd) },
		"flipped":   oci.FlipByte(layer).Bytes,
		"layerless": oci.Drop(layer).Bytes,
		"truncated": func() []byte { return oci.Bytes()[:2500] },
		"unnamed":   bundle.OCI(bundle.Good("")).Bytes,
		"foreign": func() []byte {
			image.Platform = ocispec.Platform{OS: "linux", Architecture: "s390x"}
			return bundle.OCI(image).Bytes()
		},
	}
	data, ok := forms[form]
	if !ok {
		fmt.Fprintf(os.Stderr, "bundle: unknown form %q\n", form)
		return 2
	}
	err := os.MkdirAll(filepath.Dir(file), 0o755)
	if err == nil {
		err = os.WriteFile(file, data(), 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bundle:", err)
		return 1
	}
	return 0
}
