package preseed_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// testName is a test as docs/reference/preseed-cases.md names it: package, function, and the row of its
// table or, for TestScripts, its script.
var testName = regexp.MustCompile("`([a-z0-9/]+)\\.(Test\\w+)(?:/([\\w-]+))?`")

// TestCases wants every case of the reference to have tests that exist.
func TestCases(t *testing.T) {
	page, err := os.ReadFile("../docs/reference/preseed-cases.md")
	must(t, err)
	rows := map[string]string{}
	for line := range strings.Lines(string(page)) {
		id, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		rows[id] = line
	}
	for n := 1; n <= 32; n++ {
		if id := fmt.Sprintf("P%02d", n); !testName.MatchString(rows[id]) {
			t.Errorf("%s has no test", id)
		}
	}
	for _, m := range testName.FindAllStringSubmatch(string(page), -1) {
		wantTest(t, filepath.Join("..", m[1]), m[2], m[3])
	}
}

// wantTest wants a package's directory to have a test, and the test's file to have the row.
func wantTest(t *testing.T, dir, name, row string) {
	t.Helper()
	if name == "TestScripts" {
		_, err := os.Stat(filepath.Join(dir, "testdata/script", row+".txtar"))
		must(t, err)
		return
	}
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	must(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		if _, test, found := strings.Cut(string(text), "\nfunc "+name+"(t *testing.T) {"); found {
			if test, _, _ := strings.Cut(test, "\n}\n"); row != "" && !strings.Contains(test, `"`+row+`"`) {
				t.Errorf("%s of %s has no row %q", name, dir, row)
			}
			return
		}
	}
	t.Errorf("%s is not a test of %s", name, dir)
}
