package cmd

import (
	"encoding/json"
	"fmt"
	"time"

	"seedbed/preseed"
)

// progressEvery is the least time between two reports of progress, but for the
// end of a bundle.
const progressEvery = time.Second

// progressLines returns what is made of an import's events: a bar on a terminal or
// lines on standard error, as --progress has them, and always a status for the service manager and
// time enough, so that a start does not time out while bytes move.
func (g *globals) progressLines() func(preseed.Event) {
	notify := notifier{g}
	show := g.plainProgress
	switch {
	case g.quiet || g.progress == "none":
		show = func(preseed.Event) {}
	case g.progress == "json":
		show = g.jsonProgress
	}
	last := time.Now()
	drawn := &bar{terminal: g.terminal}
	return func(e preseed.Event) {
		if g.terminal != nil {
			drawn.show(e, time.Now())
		}
		if e.Kind == preseed.EventStart || e.Kind != preseed.EventBundle && time.Since(last) < progressEvery {
			return
		}
		last = time.Now()
		show(e)
		notify.Status(progressText(e))
		notify.Extend(30 * time.Second)
	}
}

func progressText(e preseed.Event) string {
	return fmt.Sprintf("%d of %d bundles, %.1f of %.1f MiB", e.BundlesDone, e.Bundles, mebibytes(e.BytesDone), mebibytes(e.Bytes))
}

func mebibytes(n int64) float64 { return float64(n) / (1 << 20) }

func (g *globals) plainProgress(e preseed.Event) {
	switch {
	case e.Kind == preseed.EventBundle:
		g.log.Debug("bundle done", "bundle", e.Bundle, "namespace", e.Namespace, "status", e.Status, "reason", e.Reason)
	case g.terminal == nil:
		g.log.Info(progressText(e))
	}
}

// progressLine is one line of --progress json.
type progressLine struct {
	Event       preseed.EventKind `json:"event"`
	Bundle      string            `json:"bundle,omitempty"`
	Namespace   string            `json:"namespace,omitempty"`
	Status      preseed.Status    `json:"status,omitempty"`
	BundlesDone int               `json:"bundles_done"`
	Bundles     int               `json:"bundles"`
	BytesDone   int64             `json:"bytes_done"`
	Bytes       int64             `json:"bytes"`
}

func (g *globals) jsonProgress(e preseed.Event) {
	_ = json.NewEncoder(g.streams.Err).Encode(progressLine{
		Event: e.Kind, Bundle: e.Bundle, Namespace: e.Namespace, Status: e.Status,
		BundlesDone: e.BundlesDone, Bundles: e.Bundles, BytesDone: e.BytesDone, Bytes: e.Bytes,
	})
}
