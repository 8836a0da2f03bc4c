package logpump

import (
	"sync"
	"sync/atomic"
	"time"
)

// tally is the counters of all pumps of one FIFO.
type tally struct {
	records, bytes, dropped, droppedBytes, split, reopened atomic.Uint64

	report func(Counters)
	mu     sync.Mutex
	told   Counters
	last   time.Time
}

func newTally(report func(Counters)) *tally { return &tally{report: report} }

func (t *tally) counters() Counters {
	return Counters{
		Records: t.records.Load(), Bytes: t.bytes.Load(), Split: t.split.Load(), Reopened: t.reopened.Load(),
		Dropped: t.dropped.Load(), DroppedBytes: t.droppedBytes.Load(),
	}
}

func (t *tally) lose(records, bytes int) {
	t.dropped.Add(uint64(records))
	t.droppedBytes.Add(uint64(bytes))
}

// due returns when the counters are to be reported; zero if they have not changed.
func (t *tally) due() time.Time {
	if t.report == nil {
		return time.Time{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counters() == t.told {
		return time.Time{}
	}
	return t.last.Add(reportEvery)
}

// tell reports the counters if they have changed, and with now also before it is time.
func (t *tally) tell(now bool) {
	if t.report == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.counters()
	if c == t.told || !now && time.Since(t.last) < reportEvery {
		return
	}
	t.told, t.last = c, time.Now()
	t.report(c)
}
