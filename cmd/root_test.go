package cmd

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// runForTest runs a command line in this process and returns its exit code and
// what it wrote.
func runForTest(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	return code, out.String(), errs.String()
}

// TestOneDocument: with -o json standard output is exactly one document, whether
// the run succeeds, fails with a report, fails without one, or does not begin.
func TestOneDocument(t *testing.T) {
	dir := t.TempDir()
	conflict := filepath.Join(dir, "conflict")
	if err := os.Mkdir(conflict, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(conflict, "data"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args string
		code int
	}{
		{"version -o json", exitOK},
		{"storage place --root " + conflict + " -o json", exitCantCreate},
		{"storage place --root " + conflict + " --dry-run -o json", exitCantCreate},
		{"storage check --root " + dir + " -o json", exitConfig},
		{"preseed check " + filepath.Join(dir, "absent") + " -o json", exitData},
		{"storage bogus -o json", exitUsage},
		{"storage place --bogus -o json", exitUsage},
		{"storage place --bogus=x --output=json", exitUsage},
		{"storage show --layout node --builtin -o json", exitUsage},
	} {
		code, stdout, stderr := runForTest(t, strings.Fields(test.args)...)
		if code != test.code {
			t.Errorf("%s: exit code %d, want %d: %s", test.args, code, test.code, stderr)
		}
		if n := countDocuments(stdout); n != 1 {
			t.Errorf("%s: found %d documents on standard output, want one:\n%s", test.args, n, stdout)
		}
	}
}

// countDocuments returns -1 for what is no JSON.
func countDocuments(text string) int {
	decoder := json.NewDecoder(strings.NewReader(text))
	for n := 0; ; n++ {
		var document map[string]any
		switch err := decoder.Decode(&document); {
		case err == io.EOF:
			return n
		case err != nil:
			return -1
		}
	}
}

// TestOutputOfWhatCannotBeParsed: the format is found as the parser would have
// found it, and not where it is another flag's value or no flag at all.
func TestOutputOfWhatCannotBeParsed(t *testing.T) {
	for _, test := range []struct{ environment, args, want string }{
		{"", "--bogus", "text"},
		{"json", "--bogus", "json"},
		{"json", "--bogus -o text", "text"},
		{"", "-o text --bogus -o json", "json"},
		{"", "--bogus -ojson", "json"},
		{"", "--bogus -- -o json", "text"},
		{"", "-qo json --bogus", "json"},
		{"", "--bogus -qojson", "json"},
	} {
		t.Setenv("SEEDBED_OUTPUT", test.environment)
		if got := requestedOutput(strings.Fields(test.args)); got != test.want {
			t.Errorf("SEEDBED_OUTPUT=%s %s: %q, want %q", test.environment, test.args, got, test.want)
		}
	}
}
