package cmd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"testing"

	"golang.org/x/sys/unix"

	"seedbed/internal/daemon"
	"seedbed/logpump"
	"seedbed/preseed"
	"seedbed/preseed/archive"
	"seedbed/storage"
	"seedbed/units"
)

// TestExitCode: an error has its code wherever it is wrapped, and of two the one that is looked
// for first.
func TestExitCode(t *testing.T) {
	denied := &fs.PathError{Op: "open", Path: "/x", Err: unix.EACCES}
	for _, test := range []struct {
		err  error
		want int
	}{
		{errors.New("something else"), exitSome},
		{codeError(exitSome), exitSome},
		{&usageError{err: denied}, exitUsage},
		{&preseed.OptionError{Err: errors.New("x")}, exitUsage},
		{fmt.Errorf("wrapped: %w", denied), exitPermission},
		{&daemon.ConfigError{Err: denied}, exitPermission},
		{&storage.Interrupted{Err: denied}, exitPermission},
		{&daemon.ConfigError{Err: fs.ErrNotExist}, exitData},
		{&units.BadParam{}, exitData},
		{input(fs.ErrNotExist), exitData},
		{input(denied), exitPermission},
		{storage.ErrNoManifest, exitConfig},
		{errors.Join(errors.New("x"), storage.ErrLocked), exitTryAgain},
		{daemon.ErrStartTimeout, exitTryAgain},
		{&preseed.ConnectError{Err: unix.ENOENT}, exitUnavailable},
		{&storage.Interrupted{Err: errors.New("x")}, exitCantCreate},
		{&units.Conflict{}, exitCantCreate},
		{&fs.PathError{Op: "mkdir", Path: "/x", Err: unix.EROFS}, exitCantCreate},
		{&daemon.ExitError{Code: 3}, 3},
		{&daemon.ExitError{}, 1}, // nobody had asked for it
		{&daemon.ExitError{Signal: unix.SIGSEGV}, 139},
		{&daemon.BinaryError{Reason: daemon.Absent}, 127},
	} {
		if got := exitCode(test.err); got != test.want {
			t.Errorf("exit code of %T %v is %d, want %d", test.err, test.err, got, test.want)
		}
	}
}

// TestFindings: each thing that keeps containerd from being started has a hint and the exit code that the reference
// promises.
func TestFindings(t *testing.T) {
	page, err := os.ReadFile("../docs/reference/containerd.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		check string
		err   error
		want  int
	}{
		{"user", &daemon.NotRoot{User: 1}, 77},
		{"binary", &daemon.BinaryError{Reason: daemon.Absent}, 127},
		{"binary", &daemon.BinaryError{Reason: daemon.IsDirectory}, 126},
		{"config", &daemon.ConfigError{Err: errors.New("x")}, 65},
		{"config", &daemon.VersionError{}, 65},
		{"directory", &daemon.MissingDir{Err: fs.ErrNotExist}, 78},
		{"socket", &daemon.SocketError{Advice: "x"}, 73},
		{"socket", &daemon.InUse{Socket: true}, 75},
		{"fifo", &logpump.NotFIFO{}, 73},
		{"database", &daemon.InUse{}, 75},
	} {
		finding := &daemon.PreflightError{Findings: []daemon.Finding{{Check: test.check, Err: test.err}}}
		if got := exitCode(finding); got != test.want || hint(finding) == "" {
			t.Errorf("%T has exit code %d and hint %q: expected %d and a hint", test.err, got, hint(finding), test.want)
		}
		row := regexp.MustCompile(fmt.Sprintf("(?m)^\\| `%s` \\| .* \\| %d \\|$", test.check, test.want))
		if !row.Match(page) {
			t.Errorf("the reference has no row for check %s with exit code %d", test.check, test.want)
		}
	}
	for _, warning := range []error{&daemon.MissingShim{}, &daemon.OldShim{}, &daemon.NoOverlay{}} {
		if hint(warning) == "" {
			t.Errorf("%T has no hint", warning)
		}
	}
}

// TestReportCode: the code of the one kind of failure when all failed of it, that of some
// failures when others did not, and always that of a containerd that went away.
func TestReportCode(t *testing.T) {
	bundle := func(code archive.Code) *preseed.BundleReport {
		return &preseed.BundleReport{Error: &preseed.ErrorReport{Code: code}}
	}
	for name, test := range map[string]struct {
		bundles  []*preseed.BundleReport
		totals   preseed.Totals
		required []preseed.Required
		want     int
	}{
		"nothing":             {want: exitOK},
		"required is absent":  {required: []preseed.Required{{Ref: "x"}}, want: exitSome},
		"all are bad data":    {[]*preseed.BundleReport{bundle(archive.CodeTruncated), bundle(archive.CodeEmpty)}, preseed.Totals{Failed: 2}, nil, exitData},
		"one of two":          {[]*preseed.BundleReport{bundle(archive.CodeTruncated)}, preseed.Totals{Failed: 1, Imported: 1}, nil, exitSome},
		"of different kinds":  {[]*preseed.BundleReport{bundle(archive.CodeTruncated), bundle(archive.CodeNoSpace)}, preseed.Totals{Failed: 2}, nil, exitSome},
		"no space":            {[]*preseed.BundleReport{bundle(archive.CodeNoSpace)}, preseed.Totals{Failed: 1}, nil, exitCantCreate},
		"containerd went off": {[]*preseed.BundleReport{bundle(preseed.CodeUnavailable)}, preseed.Totals{Failed: 1, Imported: 1}, nil, exitUnavailable},
	} {
		report := &preseed.Report{Bundles: test.bundles, Totals: test.totals, Required: test.required}
		if got := reportCode(report); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}
