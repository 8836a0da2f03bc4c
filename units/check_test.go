package units

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
)

func needAnalyze(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skipf("systemd is not installed: %v", err)
	}
}

// C26: the shipped units pass systemd-analyze verify, with the node's paths and with others.
func TestCheck(t *testing.T) {
	needAnalyze(t)
	for name, p := range map[string]Params{"node": {}, "another host": otherHost} {
		if err := Check(t.Context(), p); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What would go wrong at the boot must be seen by the check: each row breaks the units in one way.
func TestCheckSees(t *testing.T) {
	needAnalyze(t)
	for _, test := range []struct{ name, old, new, want string }{
		{"an ordering cycle with sockets.target", "\nDefaultDependencies=no\n", "\n", "ordering cycle"},
		{"an unknown setting", "\nPipeSize=", "\nPipesize=", "Unknown key"},
		{"a unit that is not there", "Requires=seedbed-storage.service\n", "Requires=seedbed-gone.service\n", "seedbed-gone.service"},
		{"a program that is not there", "ExecStart=", "ExecStart=/nonexistent", "not executable"},
	} {
		t.Run(test.name, func(t *testing.T) {
			all, err := renderAll(Params{Binary: "/bin/true"})
			if err != nil {
				t.Fatal(err)
			}
			broken := 0
			for i := range all {
				broken += bytes.Count(all[i].text, []byte(test.old))
				all[i].text = bytes.ReplaceAll(all[i].text, []byte(test.old), []byte(test.new))
			}
			if broken == 0 {
				t.Fatalf("nothing to break: no unit holds %q", test.old)
			}
			err = verify(t.Context(), t.TempDir(), all)
			var findings *Findings
			if !errors.As(err, &findings) || !strings.Contains(findings.Output, test.want) {
				t.Errorf("got %v, want findings with %q", err, test.want)
			}
		})
	}
}

func TestCheckWithoutSystemd(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if err := Check(t.Context(), Params{}); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("got %v, want exec.ErrNotFound", err)
	}
}

func TestCheckEndsWithItsContext(t *testing.T) {
	needAnalyze(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Check(ctx, Params{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}
