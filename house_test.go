package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// allowed is the import table: for each package of ours, which others of ours
// it may import. Packages of e2e serve tests and may import what they test.
var allowed = map[string][]string{
	"seedbed":                          {"seedbed/cmd", "seedbed/internal/daemon/embedded"},
	"seedbed/cmd":                      {"seedbed/storage", "seedbed/units", "seedbed/internal/daemon", "seedbed/logpump", "seedbed/preseed", "seedbed/preseed/offline", "seedbed/preseed/archive"},
	"seedbed/storage":                  nil,
	"seedbed/units":                    {"seedbed/storage"},
	"seedbed/logpump":                  nil,
	"seedbed/internal/daemon":          {"seedbed/logpump"},
	"seedbed/internal/daemon/embedded": nil,
	"seedbed/preseed":                  {"seedbed/preseed/archive", "seedbed/preseed/layer"},
	"seedbed/preseed/archive":          nil,
	"seedbed/preseed/layer":            nil,
	"seedbed/preseed/offline":          {"seedbed/preseed"},
}

// TestImportTable keeps the arrows of the architecture (docs/explanation).
func TestImportTable(t *testing.T) {
	list, err := exec.Command("go", "list", "-json=ImportPath,Imports", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	decoder := json.NewDecoder(strings.NewReader(string(list)))
	for decoder.More() {
		var pkg struct {
			ImportPath string
			Imports    []string
		}
		if err := decoder.Decode(&pkg); err != nil {
			t.Fatal(err)
		}
		checkImports(t, pkg.ImportPath, pkg.Imports)
	}
}

func checkImports(t *testing.T, path string, imports []string) {
	if strings.HasPrefix(path, "seedbed/e2e") {
		return
	}
	own, known := allowed[path]
	if !known {
		t.Errorf("package %s has no row in the import table", path)
	}
	for _, imported := range imports {
		if strings.HasPrefix(imported, "seedbed") && !slices.Contains(own, imported) {
			t.Errorf("%s imports %s: the import table does not allow it", path, imported)
		}
		engine := strings.HasPrefix(imported, "github.com/containerd/containerd/v2/plugins") || strings.HasPrefix(imported, "github.com/containerd/containerd/v2/core/metadata")
		if engine && path != "seedbed/preseed/offline" {
			t.Errorf("%s imports %s: only preseed/offline may", path, imported)
		}
	}
}

// TestSources checks every Go file of the product against the house's rules.
func TestSources(t *testing.T) {
	for _, path := range goFiles(t) {
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if lines := fset.File(file.Pos()).LineCount(); lines > 500 {
			t.Errorf("%s: found %d lines: expected no more than 500", path, lines)
		}
		checkDeclarations(t, fset, path, file)
		checkCalls(t, fset, path, file)
	}
}

func checkDeclarations(t *testing.T, fset *token.FileSet, path string, file *ast.File) {
	isTest := strings.HasSuffix(path, "_test.go")
	for _, decl := range file.Decls {
		function, ok := decl.(*ast.FuncDecl)
		if ok && function.Recv == nil && function.Name.Name == "init" {
			t.Errorf("%s: init(): package initialisers are not used", fset.Position(function.Pos()))
		}
		if isTest || file.Name.Name == "main" {
			continue
		}
		if d, ok := decl.(*ast.GenDecl); ok && d.Tok == token.VAR && filepath.Dir(path) == "cmd" {
			t.Errorf("%s: a package variable: cmd has none", fset.Position(decl.Pos()))
		}
		for _, name := range undocumented(decl) {
			t.Errorf("%s: exported %s has no comment", fset.Position(decl.Pos()), name)
		}
	}
}

// undocumented returns the exported names of a declaration that have no comment
// of their own or of their group.
func undocumented(decl ast.Decl) []string {
	var names []string
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && d.Doc == nil && exportedReceiver(d) {
			names = append(names, d.Name.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() && d.Doc == nil && s.Doc == nil {
					names = append(names, s.Name.Name)
				}
			case *ast.ValueSpec:
				if s.Names[0].IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
					names = append(names, s.Names[0].Name)
				}
			}
		}
	}
	return names
}

// exportedReceiver reports whether a function is one that godoc shows; Error and
// Unwrap mean in every type what the standard library says.
func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	if slices.Contains([]string{"Error", "Unwrap", "Is", "Hint", "String"}, d.Name.Name) {
		return false
	}
	receiver := d.Recv.List[0].Type
	if star, ok := receiver.(*ast.StarExpr); ok {
		receiver = star.X
	}
	name, ok := receiver.(*ast.Ident)
	return ok && name.IsExported()
}

var otherVoice = regexp.MustCompile(`^"(failed to|unable to|could not|cannot )`)

func checkCalls(t *testing.T, fset *token.FileSet, path string, file *ast.File) {
	if strings.HasPrefix(path, "e2e/") || strings.HasSuffix(path, "_test.go") {
		return
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == "os" && n.Sel.Name == "Exit" && path != "main.go" {
				t.Errorf("%s: os.Exit outside main.go", fset.Position(n.Pos()))
			}
		case *ast.BasicLit:
			if n.Kind == token.STRING && otherVoice.MatchString(n.Value) {
				t.Errorf("%s: %s: expected `verb object: fact: cause`", fset.Position(n.Pos()), n.Value)
			}
		}
		return true
	})
}

// TestPackagesAreDocumented wants one package comment in every package.
func TestPackagesAreDocumented(t *testing.T) {
	documented := map[string]bool{}
	for _, path := range goFiles(t) {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Dir(path)
		documented[dir] = documented[dir] || file.Doc != nil
	}
	for dir, ok := range documented {
		if !ok {
			t.Errorf("package in %s has no package comment", dir)
		}
	}
}

// TestReferenceNamesEveryFlagAndCode wants every exit code and every flag of the
// program in docs/reference.
func TestReferenceNamesEveryFlagAndCode(t *testing.T) {
	reference := readAll(t, "docs/reference", ".md")
	source, err := os.ReadFile("cmd/exit.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range regexp.MustCompile(`(?m)^\texit\w+\s+= (\d+)`).FindAllStringSubmatch(string(source), -1) {
		if !strings.Contains(reference, fmt.Sprintf("| %s |", match[1])) {
			t.Errorf("docs/reference has no row for exit code %s", match[1])
		}
	}
	for _, path := range goFiles(t) {
		if filepath.Dir(path) != "cmd" || strings.HasSuffix(path, "_test.go") {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range regexp.MustCompile(`\.(?:String|Bool|Duration|Int|StringArray)VarP?\(&[\w.]+, "([\w-]+)"`).FindAllStringSubmatch(string(text), -1) {
			if !strings.Contains(reference, "--"+match[1]) {
				t.Errorf("docs/reference does not name the flag --%s of %s", match[1], path)
			}
		}
	}
}

var link = regexp.MustCompile(`\]\(([^)#\s]+)`)

// TestLinksLeadSomewhere follows the links between the pages.
func TestLinksLeadSomewhere(t *testing.T) {
	pages := []string{"README.md", "CONTRIBUTING.md"}
	for _, pattern := range []string{"docs/*/*.md", "docs/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range link.FindAllStringSubmatch(string(text), -1) {
			target := filepath.Join(filepath.Dir(page), match[1])
			if _, err := os.Stat(target); err != nil && !strings.Contains(match[1], "://") {
				t.Errorf("%s links to %s: %v", page, match[1], err)
			}
		}
	}
}

// TestTopLevel keeps the top of the repository to what belongs there.
func TestTopLevel(t *testing.T) {
	out, err := exec.Command("git", "ls-files").Output()
	if err != nil {
		t.Skipf("git ls-files: %v: this is no git checkout, so which files belong to it is not known", err)
	}
	want := strings.Fields("go.mod go.sum main.go house_test.go cmd units storage logpump preseed internal docs e2e README.md CONTRIBUTING.md Makefile LICENSE .ci .gitignore")
	for line := range strings.Lines(string(out)) {
		top, _, _ := strings.Cut(strings.TrimSpace(line), "/")
		if !slices.Contains(want, top) {
			t.Errorf("%s: stands at the top: expected only %v", top, want)
		}
	}
}

func goFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (strings.HasPrefix(entry.Name(), ".") && path != "." || entry.Name() == "testdata" || path == "demo") {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, ".go") {
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func readAll(t *testing.T, dir, suffix string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, suffix) {
			return err
		}
		text, err := os.ReadFile(path)
		all.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
