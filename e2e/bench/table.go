package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// write prints the report as "json" or as Markdown for the README.
func (r *report) write(w io.Writer, format string) error {
	if format == "json" {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	var out strings.Builder
	r.heading(&out)
	r.table(&out)
	r.breakdown(&out)
	r.evidence(&out)
	r.reasons(&out)
	_, err := io.WriteString(w, out.String())
	return err
}

// quiet is the load average below which a machine does nothing else.
const quiet = 0.5

func (r *report) heading(out *strings.Builder) {
	m := r.Machine
	fmt.Fprintf(out, "Measured on %s: %s, %d CPUs, %.0f GiB of memory, Linux %s, %s; %s; seedbed %s. ",
		r.Started.Format("2006-01-02"), m.CPU, m.Cores, float64(m.Memory)/(1<<30), m.Kernel, m.FileSystem, m.Containerd, r.Seedbed)
	if m.Load >= quiet {
		fmt.Fprintf(out, "**Others were at work (load average %.1f before): the ratios are noisy.** ", m.Load)
	}
	fmt.Fprintf(out, "Medians of %d alternating rounds, process start included, lowest and highest ratio in brackets.\n", r.Rounds)
	if r.Quick {
		out.WriteString("\n**A quick run with a tenth of the corpus: it shows that everything works, not how fast it is.**\n")
	}
}

func (r *report) table(out *strings.Builder) {
	out.WriteString("\n| case | baseline | seedbed | baseline | ratio | bar | | peak memory |\n|---|---|---:|---:|---:|---:|---|---:|\n")
	for _, row := range r.Rows {
		if row.Ratio == 0 {
			fmt.Fprintf(out, "| %s | %s | | | | %s | %s | |\n", row.Case, row.Baseline, row.bar(), row.Status)
			continue
		}
		fmt.Fprintf(out, "| %s | %s | %s | %s | %s (%s–%s) | %s | %s | %d / %d MiB |\n", row.Case, row.Baseline,
			row.time(row.Seedbed), row.time(row.Peer), ratio(row.Ratio), ratio(row.RatioMin), ratio(row.RatioMax),
			row.bar(), row.Status, row.Seedbed.RSS/mib, row.Peer.RSS/mib)
	}
}

// time is a side's wall time, and its CPU time where that is what counts.
func (r *result) time(s series) string {
	if r.CPU {
		return fmt.Sprintf("%s CPU (%s)", seconds(s.User+s.System), seconds(s.Seconds))
	}
	return seconds(s.Seconds)
}

func (r *result) bar() string {
	var bars []string
	if r.Bar > 0 {
		bars = append(bars, fmt.Sprintf("≤ %g", r.Bar))
	}
	if r.Limit > 0 {
		bars = append(bars, "≤ "+seconds(r.Limit)) // of wall time
	}
	return strings.Join(bars, ", ")
}

// seconds writes a time with three digits that mean something.
func seconds(s float64) string {
	switch {
	case s < 1:
		return fmt.Sprintf("%.0f ms", s*1000)
	case s < 10:
		return fmt.Sprintf("%.2f s", s)
	}
	return fmt.Sprintf("%.1f s", s)
}

func ratio(r float64) string {
	if r < 0.1 {
		return fmt.Sprintf("%.4f", r)
	}
	return fmt.Sprintf("%.2f", r)
}

// breakdown prints where seedbed's time goes, for the rows that were looked at.
func (r *report) breakdown(out *strings.Builder) {
	const title = "\nWhere seedbed's time goes, in seconds. To the left what the clock and the kernel's accounts say: waiting, for the daemon or the\n" +
		"disk, is at least what of the wall time no CPU time of seedbed explains. To the right one run under strace: time inside of\n" +
		"system calls, all threads added up (they overlap, and a tracer slows them down).\n\n" +
		"| case | wall | user CPU | of that hash / decompress / other | kernel CPU | waiting | containerd's CPU | read | write | send | sync |\n" +
		"|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n"
	printed := false
	for _, row := range r.Rows {
		p := row.Breakdown
		if p == nil {
			continue
		}
		if !printed {
			out.WriteString(title)
			printed = true
		}
		fmt.Fprintf(out, "| %s | %.3f | %.3f | %s | %.3f | %.3f | %s | %s | %s | %s | %s |\n", row.Case, row.Seedbed.Seconds, row.Seedbed.User,
			p.cpu(row.Seedbed.User), row.Seedbed.System, row.Seedbed.waiting(), orDash(row.Seedbed.Daemon), p.Read, p.Write, p.Send, p.Sync)
	}
}

func orDash(seconds float64) string {
	if seconds == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", seconds)
}

func (r *report) evidence(out *strings.Builder) {
	for _, row := range r.Rows {
		if row.Evidence != "" {
			fmt.Fprintf(out, "\n%s: %s.\n", row.Case, row.Evidence)
		}
	}
}

// reasons say of every row that has no met bar why.
func (r *report) reasons(out *strings.Builder) {
	for _, row := range r.Rows {
		if row.Reason != "" {
			fmt.Fprintf(out, "\n%s: %s: %s\n", row.Case, row.Status, row.Reason)
		}
	}
}
