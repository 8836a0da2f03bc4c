package preseed

import (
	"context"
	"slices"

	"seedbed/preseed/archive"
)

// importAgain goes on with an import whose containerd went away: once, when Options.Reconnect finds
// it again. What the first attempt did is in the report as it was.
func importAgain(ctx context.Context, first *run, sources []Source, o Options) (*Report, error) {
	s, err := o.Reconnect(ctx)
	if err != nil {
		return first.report, err
	}
	sources = slices.DeleteFunc(slices.Clone(sources), func(s Source) bool { return s.Reader != nil }) // read already
	second, err := importOnce(ctx, s, sources, o, first.left)
	if second == nil {
		return first.report, err
	}
	second.report.Started = first.report.Started
	second.report.Warnings = slices.Concat(first.report.Warnings, second.report.Warnings)
	for n, b := range first.report.Bundles {
		k := slices.IndexFunc(second.report.Bundles, func(again *BundleReport) bool {
			return again.Path == b.Path && again.Namespace == b.Namespace
		})
		if k < 0 {
			continue
		}
		if again := second.report.Bundles[k]; b.Status != StatusImported || again.Status != StatusUnchanged {
			again.Bytes.Read += b.Bytes.Read
			again.Bytes.Written += b.Bytes.Written
			again.Seconds += b.Seconds
			first.report.Bundles[n] = again
		}
	}
	second.report.Bundles = first.report.Bundles
	second.report.count()
	return second.report, err
}

// lost reports whether containerd went away while a bundle was imported.
func (r *Report) lost() bool {
	return slices.ContainsFunc(r.Bundles, func(b *BundleReport) bool { return b.Error != nil && b.Error.Code == archive.Code(CodeUnavailable) })
}
