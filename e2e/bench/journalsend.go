package main

import (
	"bufio"
	"os"

	"github.com/coreos/go-systemd/v22/journal"
)

// journalSend is the peer of the pump rows: what one writes in Go to carry a FIFO's lines to the journal. It ends with
// its FIFO or a signal.
func journalSend(fifo string) error {
	f, err := os.Open(fifo)
	if err != nil {
		return err
	}
	defer f.Close()
	fields := map[string]string{"SYSLOG_IDENTIFIER": "bench"}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if err := journal.Send(lines.Text(), journal.PriInfo, fields); err != nil {
			return err
		}
	}
	return lines.Err()
}
