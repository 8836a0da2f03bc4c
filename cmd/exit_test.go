package cmd

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"golang.org/x/sys/unix"

	"seedbed/internal/daemon"
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
		{&daemon.ExitError{Signal: unix.SIGSEGV}, 139},
		{&daemon.BinaryError{Reason: daemon.Absent}, 127},
	} {
		if got := exitCode(test.err); got != test.want {
			t.Errorf("exit code of %T %v is %d, want %d", test.err, test.err, got, test.want)
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
