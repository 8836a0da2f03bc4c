package logpump

import (
	"go/ast"
	goparser "go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// journalName is what a field's name, with what may stand behind it in a literal, looks like, and also what the
// name of a level does.
var journalName = regexp.MustCompile(`^([A-Z][A-Z_]{2,})=?$`)

// TestReference wants every name that this package knows, of fields and of levels, in the reference.
func TestReference(t *testing.T) {
	page, err := os.ReadFile("../docs/reference/logs.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, name := range upperCaseLiterals(t, file) {
			if name == "FIFO" { // a word of messages
				continue
			}
			found++
			if !strings.Contains(string(page), "`"+name+"`") && !strings.Contains(string(page), "`"+name+"…`") {
				t.Errorf("%s: %s: the reference does not have it", file, name)
			}
		}
	}
	if found < 12 {
		t.Errorf("found %d names in the sources: expected more: the test does not see them", found)
	}
}

// upperCaseLiterals are the string literals of a file that may name a field or a level.
func upperCaseLiterals(t *testing.T, file string) []string {
	t.Helper()
	parsed, err := goparser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	ast.Inspect(parsed, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			text, _ := strconv.Unquote(literal.Value) // the parser has read it
			if m := journalName.FindStringSubmatch(text); m != nil {
				names = append(names, m[1])
			}
		}
		return true
	})
	return names
}
