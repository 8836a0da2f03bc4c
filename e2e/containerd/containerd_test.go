package containerd_test

import (
	"testing"

	"seedbed/e2e/containerd"
)

func TestDaemonStartsStopsAndStartsAgain(t *testing.T) {
	d := containerd.Start(t)
	d.Stop(t)
	d.Start(t)
	d.Kill()
	d.Start(t)
	if _, err := d.Client(t).Version(t.Context()); err != nil {
		t.Fatal(err)
	}
}
