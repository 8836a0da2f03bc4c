package preseed

import (
	"time"

	"github.com/opencontainers/go-digest"

	"seedbed/preseed/archive"
)

// Schema is the version of the report's JSON.
const Schema = "seedbed.preseed.report/v1"

// Mode is what a report reports.
type Mode string

// The modes of a report.
const (
	ModeOnline  Mode = "online"
	ModeOffline Mode = "offline"
	ModeCheck   Mode = "check"
	ModeVerify  Mode = "verify"
)

// Status is the outcome for a bundle or an image.
type Status string

// The outcomes. Incomplete is what verify says of an image that the store lacks in whole or part.
const (
	StatusImported   Status = "imported"   // written, or labelled, in this run
	StatusUnchanged  Status = "unchanged"  // nothing had to be written
	StatusOK         Status = "ok"         // looked at and good
	StatusIncomplete Status = "incomplete" // the bundle is good, the store is not
	StatusSkipped    Status = "skipped"    // no bundle, or not reached
	StatusFailed     Status = "failed"
	StatusArtifact   Status = "artifact" // no image that could be run, and not imported
)

// Report is what happened to every bundle. Its bundles stand in lexical order of namespace and
// path.
type Report struct {
	Schema   string          `json:"schema"`
	Mode     Mode            `json:"mode"`
	Started  time.Time       `json:"started"`
	Seconds  float64         `json:"seconds"`
	Bundles  []*BundleReport `json:"bundles"`
	Required []Required      `json:"required,omitempty"`
	Totals   Totals          `json:"totals"`

	// Warnings are sentences for people; each is also the reason of a bundle or image.
	Warnings []string `json:"-"`
}

// BundleReport is the outcome for one bundle.
type BundleReport struct {
	Path        string              `json:"path"`
	Namespace   string              `json:"namespace,omitempty"`
	Format      archive.Format      `json:"format,omitempty"`
	Compression archive.Compression `json:"compression,omitempty"`
	Status      Status              `json:"status"`
	Reason      string              `json:"reason,omitempty"`
	Images      []*ImageReport      `json:"images,omitempty"`
	Bytes       Bytes               `json:"bytes,omitzero"`
	Seconds     float64             `json:"seconds,omitempty"`
	Error       *ErrorReport        `json:"error,omitempty"`

	clutter bool // not a bundle at all
}

// ImageReport is the outcome for one image of a bundle.
type ImageReport struct {
	Name      string        `json:"name,omitempty"`
	Digest    digest.Digest `json:"digest,omitempty"`
	Platforms []string      `json:"platforms,omitempty"`
	Status    Status        `json:"status"`
	Pinned    bool          `json:"pinned"`
	Unpacked  bool          `json:"unpacked"`
	Reason    string        `json:"reason,omitempty"`
}

// Bytes counts the bytes of a bundle: its file, what was read of it, what was written to the store
// from it, and what its images need and the store had.
type Bytes struct {
	Archive int64 `json:"archive"`
	Read    int64 `json:"read"`
	Written int64 `json:"written"`
	Reused  int64 `json:"reused"`
}

// ErrorReport is an [Error] as the report has it.
type ErrorReport struct {
	Code     archive.Code `json:"code"`
	Member   string       `json:"member,omitempty"`
	Expected string       `json:"expected,omitempty"`
	Found    string       `json:"found,omitempty"`
	Hint     string       `json:"hint,omitempty"`
}

func reportError(e *Error) *ErrorReport {
	return &ErrorReport{Code: e.Code, Member: e.Member, Expected: e.Expected, Found: e.Found, Hint: e.Advice}
}

// Required is one reference that had to be there.
type Required struct {
	Ref     string `json:"ref"`
	Present bool   `json:"present"`
}

// Totals counts the report. Failed counts incomplete bundles too; Images counts those that are
// good: imported, unchanged or ok.
type Totals struct {
	Bundles      int   `json:"bundles"`
	Imported     int   `json:"imported"`
	Unchanged    int   `json:"unchanged"`
	Skipped      int   `json:"skipped"`
	Failed       int   `json:"failed"`
	Images       int   `json:"images"`
	BytesRead    int64 `json:"bytes_read"`
	BytesWritten int64 `json:"bytes_written"`
}

// Failed reports whether a bundle failed or a required image is absent.
func (r *Report) Failed() bool {
	for _, q := range r.Required {
		if !q.Present {
			return true
		}
	}
	return r.Totals.Failed > 0
}

// count fills in the totals. What is no bundle at all counts as skipped, and not as a bundle.
func (r *Report) count() {
	r.Totals = Totals{}
	t := &r.Totals
	for _, b := range r.Bundles {
		if !b.clutter {
			t.Bundles++
		}
		switch b.Status {
		case StatusImported:
			t.Imported++
		case StatusUnchanged, StatusOK:
			t.Unchanged++
		case StatusSkipped:
			t.Skipped++
		case StatusFailed, StatusIncomplete:
			t.Failed++
		}
		for _, i := range b.Images {
			switch i.Status {
			case StatusImported, StatusUnchanged, StatusOK:
				t.Images++
			}
		}
		t.BytesRead += b.Bytes.Read
		t.BytesWritten += b.Bytes.Written
	}
	r.Seconds = seconds(time.Since(r.Started))
}

// seconds rounds to milliseconds, which is all that a report can say of a duration.
func seconds(d time.Duration) float64 { return d.Round(time.Millisecond).Seconds() }
