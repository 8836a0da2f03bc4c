package cmd

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"seedbed/logpump"
	"seedbed/storage"
)

// meter keeps the counters of log FIFOs where an operator looks: in the unit's
// status, in the last line of the log, and in a file for Prometheus' node
// exporter.
type meter struct {
	g    *globals
	file string

	lock     sync.Mutex
	base     string // the status without counters
	counters map[string]logpump.Counters
}

// newMeter returns a meter for the FIFOs that writes the first page into file, if there is to be one: a
// file that cannot be written is told of now, and an exporter finds zeros before there are records.
func newMeter(g *globals, file string, fifos ...string) (*meter, error) {
	m := &meter{g: g, file: file, counters: map[string]logpump.Counters{}}
	for _, fifo := range fifos {
		m.counters[fifo] = logpump.Counters{}
	}
	return m, m.write(m.metrics())
}

// write writes the page, in one step.
func (m *meter) write(page string) error {
	if m.file == "" {
		return nil
	}
	if err := storage.WriteFile(m.file, []byte(page), 0o644); err != nil {
		return fmt.Errorf("write metrics %q: %w", m.file, err)
	}
	return nil
}

// status sets the status that the counters are appended to.
func (m *meter) status(text string) {
	m.lock.Lock()
	m.base = text
	m.lock.Unlock()
	notifier{m.g}.Status(m.text())
}

// count takes the counters of one FIFO.
func (m *meter) count(fifo string, c logpump.Counters) {
	m.lock.Lock()
	m.counters[fifo] = c
	page := m.metrics()
	m.lock.Unlock()
	notifier{m.g}.Status(m.text())
	if err := m.write(page); err != nil {
		m.g.log.Warn(err.Error())
	}
}

// text is the status with the counters.
func (m *meter) text() string {
	m.lock.Lock()
	defer m.lock.Unlock()
	text := m.base
	for _, fifo := range slices.Sorted(maps.Keys(m.counters)) {
		text += "; " + fifo + ": " + countersText(m.counters[fifo])
	}
	return strings.TrimPrefix(text, "; ")
}

// end logs the counters, once the pumps have ended.
func (m *meter) end() {
	m.lock.Lock()
	defer m.lock.Unlock()
	for _, fifo := range slices.Sorted(maps.Keys(m.counters)) {
		m.g.log.Info("log FIFO " + fifo + ": " + countersText(m.counters[fifo]))
	}
}

// countersText names what is always of interest, and what went wrong if it did.
func countersText(c logpump.Counters) string {
	text := fmt.Sprintf("%d records, %d bytes", c.Records, c.Bytes)
	for _, more := range []struct {
		n    uint64
		name string
	}{{c.Dropped, "dropped"}, {c.Split, "split"}, {c.Reopened, "reopened"}} {
		if more.n > 0 {
			text += fmt.Sprintf(", %d %s", more.n, more.name)
		}
	}
	return text
}

// metrics is the page for Prometheus
// (https://prometheus.io/docs/instrumenting/exposition_formats/).
func (m *meter) metrics() string {
	var page strings.Builder
	for _, metric := range []struct {
		name, help string
		value      func(logpump.Counters) uint64
	}{
		{"records", "Records cut from the log FIFO.", func(c logpump.Counters) uint64 { return c.Records }},
		{"bytes", "Bytes read from the log FIFO.", func(c logpump.Counters) uint64 { return c.Bytes }},
		{"dropped_records", "Records that are not in the log.", func(c logpump.Counters) uint64 { return c.Dropped }},
		{"dropped_bytes", "Bytes of the records that are not in the log.", func(c logpump.Counters) uint64 { return c.DroppedBytes }},
		{"split_records", "Records that were too long and came in pieces.", func(c logpump.Counters) uint64 { return c.Split }},
		{"reopened", "How often something else stood in the FIFO's place and was put right.", func(c logpump.Counters) uint64 { return c.Reopened }},
	} {
		name := "seedbed_log_" + metric.name + "_total"
		fmt.Fprintf(&page, "# HELP %s %s\n# TYPE %s counter\n", name, metric.help, name)
		for _, fifo := range slices.Sorted(maps.Keys(m.counters)) {
			fmt.Fprintf(&page, "%s{fifo=%q} %d\n", name, fifo, metric.value(m.counters[fifo]))
		}
	}
	return page.String()
}
