package storage

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestCasesAreListedAndTested holds the page of cases against the tests: each case has a row, each row has tests, each
// test that is named exists, and one of a case's tests says so by its name or that of a sub-test.
func TestCasesAreListedAndTested(t *testing.T) {
	page, err := os.ReadFile("../docs/reference/storage-cases.md")
	must(t, err)
	files, err := filepath.Glob("*_test.go")
	must(t, err)
	files = append(files, "../cmd/testdata/script/storage.txtar")
	defined := map[string]bool{"storage.txtar": true}
	var sources strings.Builder
	for _, name := range files {
		data, err := os.ReadFile(name)
		must(t, err)
		sources.Write(data)
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(string(data), -1) {
			defined[m[1]] = true
		}
	}
	named := regexp.MustCompile("`(Test\\w+|\\w+\\.txtar)`")
	for _, m := range named.FindAllStringSubmatch(string(page), -1) {
		if !defined[m[1]] {
			t.Errorf("the page names %s: there is none", m[1])
		}
	}
	for i := 1; i <= 20; i++ {
		id := fmt.Sprintf("S%02d", i)
		row := regexp.MustCompile(`(?m)^\| ` + id + ` \|.*`).FindString(string(page))
		if !named.MatchString(row) {
			t.Errorf("%s has no row with a test", id)
		}
		if !regexp.MustCompile(`func TestS?\w*` + id + `|"` + id + ` |# ` + id + `:`).MatchString(sources.String()) {
			t.Errorf("%s has no test with its name", id)
		}
	}
}
