package cmd

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"seedbed/e2e/bundle"
	"seedbed/preseed"
)

// TestInterruptedImportReports: what was done until the interruption is printed, as the one
// document on standard output, and the exit code is not 0.
func TestInterruptedImportReports(t *testing.T) {
	dir := t.TempDir()
	archive := filepath.Join(dir, "good.tar")
	if err := os.WriteFile(archive, bundle.OCI(bundle.Good("example.com/good:v1")).Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errors bytes.Buffer
	code := run(ctx, []string{"preseed", "import", archive, "-n", "k8s.io", "--offline", "--containerd-root", filepath.Join(dir, "root"), "-o", "json"},
		streams{In: strings.NewReader(""), Out: &out, Err: &errors})
	if code != exitSome {
		t.Errorf("exit code %d, want %d", code, exitSome)
	}
	var report preseed.Report
	if err := json.Unmarshal(out.Bytes(), &report); err != nil || report.Totals.Failed != 1 {
		t.Errorf("standard output %s: error %v, want one report with one failure", out.Bytes(), err)
	}
	if want := "seedbed: interrupted: what the report says is done stays done\n"; errors.String() != want {
		t.Errorf("standard error %q, want %q", errors.String(), want)
	}
}
