package main

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// report is what a run found; it is the document of -o json.
type report struct {
	Started time.Time `json:"started"`
	Quick   bool      `json:"quick,omitempty"` // a small corpus: its ratios say nothing
	Rounds  int       `json:"rounds"`
	Seedbed string    `json:"seedbed"` // the commit that it was built from
	Machine machine   `json:"machine"`
	Rows    []result  `json:"rows"`
}

// result is one measured row.
type result struct {
	ID          string   `json:"id"`
	Case        string   `json:"case"`
	Baseline    string   `json:"baseline"`
	CPU         bool     `json:"cpu,omitempty"`           // the ratio is one of CPU time, not of wall time
	Bar         float64  `json:"bar,omitempty"`           // seedbed's time over the baseline's
	Limit       float64  `json:"limit,omitempty"`         // of seedbed's wall time, in seconds
	MemoryLimit int64    `json:"memory_limit,omitempty"`  // of seedbed's peak, in bytes
	Status      status   `json:"status"`                  // the verdict
	Reason      string   `json:"reason,omitempty"`        // why it is missed, not available or not measured
	Ratio       float64  `json:"ratio,omitempty"`         // median of the rounds' ratios
	RatioMin    float64  `json:"ratio_min,omitempty"`     // the best round
	RatioMax    float64  `json:"ratio_max,omitempty"`     // the worst round
	Seedbed     series   `json:"seedbed"`                 // medians over the rounds
	Peer        series   `json:"peer"`                    // likewise
	Breakdown   *profile `json:"breakdown,omitempty"`     // where seedbed's time goes
	Writes      []string `json:"writing_calls,omitempty"` // system calls that write, where there should be none
	Evidence    string   `json:"evidence,omitempty"`      // what was looked for besides
}

// status is a verdict.
type status string

// The verdicts.
const (
	statusMet         status = "met"
	statusMissed      status = "missed"
	statusShown       status = "shown" // there is no bar
	statusUnavailable status = "not available"
	statusUnmeasured  status = "not measured"
)

// series is one side's runs.
type series struct {
	Seconds float64 `json:"seconds"`          // wall time
	User    float64 `json:"user"`             // CPU, in seconds
	System  float64 `json:"system"`           // CPU, in seconds
	Daemon  float64 `json:"daemon,omitempty"` // containerd's CPU meanwhile, in seconds
	RSS     int64   `json:"rss"`              // the highest peak of memory, in bytes
	Stored  int64   `json:"stored,omitempty"` // size of all blobs in the store afterwards, in bytes
	samples []sample
}

// waiting is how long at least nothing of the program ran, in seconds.
func (s *series) waiting() float64 { return max(0, s.Seconds-s.User-s.System) }

func (s *series) settle() {
	s.Seconds = median(each(s.samples, func(s sample) float64 { return s.Wall.Seconds() }))
	s.User = median(each(s.samples, func(s sample) float64 { return s.User.Seconds() }))
	s.System = median(each(s.samples, func(s sample) float64 { return s.System.Seconds() }))
	s.Daemon = median(each(s.samples, func(s sample) float64 { return s.Daemon.Seconds() }))
	s.Stored = median(each(s.samples, func(s sample) int64 { return s.Stored }))
	s.RSS = slices.Max(each(s.samples, func(s sample) int64 { return s.RSS }))
}

// settle computes what the rounds say and the verdict.
func (r *result) settle() {
	r.Seedbed.settle()
	r.Peer.settle()
	var ratios []float64
	for i, own := range r.Seedbed.samples {
		ratios = append(ratios, r.cost(own)/r.cost(r.Peer.samples[i]))
	}
	if own, peer := r.Seedbed.Stored, r.Peer.Stored; own < peer-peer/50 {
		r.fail(fmt.Errorf("compare the stores: found %d bytes of blobs: expected about the peer's %d", own, peer))
		return
	}
	r.Ratio, r.RatioMin, r.RatioMax = median(ratios), slices.Min(ratios), slices.Max(ratios)
	r.Status = statusMet
	switch {
	case r.Bar > 0 && r.Ratio > r.Bar:
		r.miss("ratio %.4f: bar %g", r.Ratio, r.Bar)
	case r.Limit > 0 && r.Seedbed.Seconds > r.Limit:
		r.miss("%.0f ms: limit %.0f ms", r.Seedbed.Seconds*1000, r.Limit*1000)
	case r.MemoryLimit > 0 && r.Seedbed.RSS > r.MemoryLimit:
		r.miss("peak memory %d MiB: limit %d MiB", r.Seedbed.RSS/mib, r.MemoryLimit/mib)
	case r.Bar == 0 && r.Limit == 0:
		r.Status = statusShown
	}
}

// cost is what a run is compared by, in seconds.
func (r *result) cost(s sample) float64 {
	if r.CPU {
		return (s.User + s.System).Seconds()
	}
	return s.Wall.Seconds()
}

func (r *result) miss(format string, args ...any) {
	r.Status, r.Reason = statusMissed, fmt.Sprintf(format, args...)
}

// fail records that the row has no value.
func (r *result) fail(err error) {
	r.Status, r.Reason = statusUnmeasured, err.Error()
	if errors.Is(err, errRefused) {
		r.Status = statusUnavailable
	}
}

// brief is the row in one line, for who waits for it.
func (r *result) brief() string {
	if r.Ratio == 0 {
		return fmt.Sprintf("%s: %s", r.Status, r.Reason)
	}
	return fmt.Sprintf(" %.3f s, %.3f s, ratio %.4f: %s", r.Seedbed.Seconds, r.Peer.Seconds, r.Ratio, r.Status)
}

// verdict returns an error when a row was not measured, or, checked, when a bar is missed or a row not available.
func (r *report) verdict(check bool) error {
	has := func(wanted ...status) bool {
		return slices.ContainsFunc(r.Rows, func(r result) bool { return slices.Contains(wanted, r.Status) })
	}
	switch {
	case has(statusUnmeasured):
		return errUnmeasured
	case check && has(statusMissed, statusUnavailable):
		return errMissed
	}
	return nil
}
