package archive

import (
	"strings"
	"testing"
)

// TestCleanName: a member is looked up by its path inside the archive; one that
// leaves it, or only might, does not count.
func TestCleanName(t *testing.T) {
	for raw, want := range map[string]string{
		"index.json":                    "index.json",
		"./index.json":                  "index.json",
		"blobs//sha256/a":               "blobs/sha256/a",
		"a/..b/c":                       "a/..b/c",
		"/index.json":                   "",
		"../index.json":                 "",
		"a/../index.json":               "",
		"a/../../index.json":            "",
		"..":                            "",
		".":                             "",
		"":                              "",
		strings.Repeat("a", maxName):    strings.Repeat("a", maxName),
		strings.Repeat("a", maxName+1):  "",
		"x/" + strings.Repeat("../", 9): "",
	} {
		if got := cleanName(raw); got != want {
			t.Errorf("cleanName(%.40q) = %.40q, want %.40q", raw, got, want)
		}
	}
}
