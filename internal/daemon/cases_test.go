package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// testName is a test as docs/reference/containerd-cases.md names it: package, function, and a script's name for
// TestScripts.
var testName = regexp.MustCompile("`([a-z0-9/]+)\\.(Test\\w+)(?:/(\\w+))?`")

// TestCases wants every case of the reference to have tests that exist.
func TestCases(t *testing.T) {
	const top = "../../"
	page, err := os.ReadFile(top + "docs/reference/containerd-cases.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for line := range strings.Lines(string(page)) {
		if cells := strings.Split(line, " | "); len(cells) == 4 {
			rows[strings.TrimPrefix(cells[0], "| ")] = cells[3]
		}
	}
	for n := 1; n <= 26; n++ {
		if id := fmt.Sprintf("C%02d", n); !testName.MatchString(rows[id]) {
			t.Errorf("%s has no test", id)
		}
	}
	for _, m := range testName.FindAllStringSubmatch(string(page), -1) {
		if !hasTest(t, top+m[1], m[2]) {
			t.Errorf("%s is not a test of package %s", m[2], m[1])
		}
		if script := filepath.Join(top, m[1], "testdata/script", m[3]+".txtar"); m[3] != "" && !exists(script) {
			t.Errorf("there is no script %s", script)
		}
	}
}

// hasTest reports whether a package's directory has the test.
func hasTest(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "\nfunc "+name+"(t *testing.T) {") {
			return true
		}
	}
	return false
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
