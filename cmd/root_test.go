package cmd

import (
	"strings"
	"testing"
)

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
