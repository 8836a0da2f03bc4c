package bundle

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestHelloImageRuns(t *testing.T) {
	image, err := HelloImage("example.com/hello:v1")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "hello")
	if err := os.WriteFile(path, image.Layers[0].Files[0].Data, 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(path, image.Command[1:]...).Output()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(out), "hello from example.com/hello:v1\n"; got != want {
		t.Errorf("output = %q, want %q", got, want)
	}
}

func TestArchivesAreReproducible(t *testing.T) {
	for name, write := range map[string]func(...Image) Tar{"oci": OCI, "docker": Docker, "hybrid": Hybrid} {
		one, two := write(Good("example.com/good:v1")).Bytes(), write(Good("example.com/good:v1")).Bytes()
		if !bytes.Equal(one, two) {
			t.Errorf("%s: two runs differ", name)
		}
	}
}
