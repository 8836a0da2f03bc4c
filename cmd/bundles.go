package cmd

import (
	"fmt"
	"path/filepath"
	"strings"

	"seedbed/preseed"
	"seedbed/preseed/archive"
)

// bundleCode is the exit code for what one bundle failed of.
func bundleCode(code archive.Code) int {
	switch code {
	case preseed.CodeUnavailable:
		return exitUnavailable
	case archive.CodeNoSpace:
		return exitCantCreate
	case archive.CodePermission:
		return exitPermission
	case archive.CodeInternal:
		return exitSome
	}
	return exitData
}

// writeBundle writes what happened to one bundle and to each of its images.
func writeBundle(out *strings.Builder, b *preseed.BundleReport) {
	fmt.Fprintf(out, "%-11s %s", b.Status, printable(bundleName(b)))
	if b.Reason != "" {
		fmt.Fprintf(out, ": %s", printable(b.Reason))
	}
	if b.Error != nil {
		fmt.Fprintf(out, " (%s)", b.Error.Code)
	}
	out.WriteByte('\n')
	if b.Error != nil && b.Error.Hint != "" {
		fmt.Fprintf(out, "            hint: %s\n", printable(b.Error.Hint))
	}
	for _, image := range b.Images {
		writeImage(out, b, image)
	}
}

func bundleName(b *preseed.BundleReport) string {
	return strings.TrimPrefix(b.Namespace+"/"+filepath.Base(b.Path), "/")
}

// writeImage leaves out what the line of its bundle has said.
func writeImage(out *strings.Builder, b *preseed.BundleReport, image *preseed.ImageReport) {
	name := image.Name
	if name == "" {
		name = "unnamed image " + string(image.Digest)
	}
	var facts []string
	if image.Status != b.Status {
		facts = append(facts, string(image.Status))
	}
	facts = append(facts, image.Platforms...)
	if image.Pinned {
		facts = append(facts, "pinned")
	}
	if image.Unpacked {
		facts = append(facts, "unpacked")
	}
	fmt.Fprintf(out, "            %s", printable(name))
	if len(facts) > 0 {
		fmt.Fprintf(out, " (%s)", printable(strings.Join(facts, ", ")))
	}
	if image.Reason != "" && image.Reason != b.Reason {
		fmt.Fprintf(out, ": %s", printable(image.Reason))
	}
	out.WriteByte('\n')
}

func reportSummary(r *preseed.Report) string {
	t := r.Totals
	done := fmt.Sprintf("%d imported, %d unchanged", t.Imported, t.Unchanged)
	if r.Mode == preseed.ModeCheck || r.Mode == preseed.ModeVerify {
		done = fmt.Sprintf("%d ok", t.Unchanged)
		if t.Imported > 0 {
			done += fmt.Sprintf(", %d repaired", t.Imported)
		}
	}
	return fmt.Sprintf("%s: %s, %d skipped, %d failed", count(t.Bundles, "bundle", "bundles"), done, t.Skipped, t.Failed)
}
