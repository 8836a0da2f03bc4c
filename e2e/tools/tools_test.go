package tools_test

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"seedbed/e2e/tools"
)

// The tools must be built from what the product is built from: another version of a shared module would test another
// containerd, and compile everything twice.
func TestVersionsAreTheProducts(t *testing.T) {
	product, beside := required(t, "../../go.mod"), required(t, "tools.mod")
	for path, version := range product {
		if beside[path] != version {
			t.Errorf("%s is %s in go.mod and %q in tools.mod", path, version, beside[path])
		}
	}
}

// required returns a go.mod file's requirements, path to version.
func required(t *testing.T, file string) map[string]string {
	t.Helper()
	out, err := exec.Command("go", "mod", "edit", "-json", file).Output()
	if err != nil {
		t.Fatalf("go mod edit -json %s: %v", file, err)
	}
	var mod struct {
		Require []struct{ Path, Version string }
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	for _, r := range mod.Require {
		versions[r.Path] = r.Version
	}
	return versions
}

func TestBuild(t *testing.T) {
	if testing.Short() {
		t.Skip("building containerd takes minutes on a cold cache")
	}
	paths := tools.Build(t)
	for _, path := range []string{paths.Containerd, paths.Ctr, paths.Shim} {
		flag := "--version"
		if path == paths.Shim {
			flag = "-v"
		}
		out, err := exec.Command(path, flag).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "containerd") {
			t.Errorf("%s %s: %v\n%s", path, flag, err, out)
		}
	}
}
