package logpump

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// busyWait is how long to wait before a busy sink is asked again.
const busyWait = 10 * time.Millisecond

// emit hands the finished records to the sink, and with flush the unfinished one
// too. It returns when none is left, or when the time for the end is up.
func (p *pump) emit(flush bool) {
	for {
		p.collect(flush)
		if len(p.places) == 1 { // nothing but, perhaps, blank lines
			p.store.setSpan(p.split.off, len(p.split.buf))
			return
		}
		if !p.deliver() {
			return
		}
	}
}

// collect cuts the next records. A piece of a long record is a batch of its own, since the parser
// knows the head of only one.
func (p *pump) collect(flush bool) {
	p.batch, p.places, p.begins = p.batch[:0], p.places[:0], false
	p.parser.reset()
	if p.notice.records > 0 {
		p.batch = append(p.batch, p.notice.record())
	}
	for from := p.split.off; len(p.places) < batchSize && p.split.off-from < readSize; {
		place := p.split
		raw, ok := p.split.next(flush)
		if !ok {
			break
		}
		if raw.part > 0 && len(p.places) > 0 {
			p.split = place
			break
		}
		p.places = append(p.places, place)
		p.batch = append(p.batch, p.marked(p.parser.parse(raw)))
		if raw.part > 0 {
			p.begins = raw.part == 1
			break
		}
	}
	p.places = append(p.places, p.split)
}

// marked marks the record that was collected last if it may be in the log already.
func (p *pump) marked(r Record) Record {
	if len(p.places) <= p.again {
		n := len(r.Fields)
		r.Fields = append(r.Fields[:n:n], Field{FieldAgain, "1"})
	}
	return r
}

// deliver hands the batch to the sink and goes back to the first record that it has
// not taken; false when the time for the end is up.
func (p *pump) deliver() bool {
	n, err := p.hand()
	told := len(p.batch) - (len(p.places) - 1) // 1 with a notice in front
	if n >= told {
		p.notice = lost{}
	}
	busy := errors.Is(err, ErrBusy)
	done := max(0, n-told)
	p.count(done)
	if n < len(p.batch) && !busy {
		done = p.refused(n, told, done)
	}
	p.split = p.places[done]
	p.again = max(0, p.again-done)
	p.store.setSpan(p.split.off, len(p.split.buf))
	p.store.setDoubt(p.again)
	p.store.endBatch()
	return !busy || p.holdOut()
}

// hand hands the batch to the sink. With a spool, a successor can tell how far it got.
func (p *pump) hand() (int, error) {
	if p.store.file == nil {
		return p.sink.Send(p.batch)
	}
	m, ok := p.sink.(marker)
	p.store.beginBatch(p.places, len(p.batch), ok)
	if ok {
		return m.sendMarked(p.batch, p.store.marks())
	}
	return p.sink.Send(p.batch)
}

// count counts the first n records of the batch.
func (p *pump) count(n int) {
	p.tally.records.Add(uint64(n))
	if n > 0 && p.begins {
		p.tally.split.Add(1)
	}
}

// refused counts the record that the sink has refused, which may be the notice, and
// returns how many of the stream's records are done with then.
func (p *pump) refused(n, told, done int) int {
	if n < told {
		p.notice = lost{}
		return done
	}
	p.tally.records.Add(1)
	p.tally.lose(1, p.places[done+1].off-p.places[done].off)
	return done + 1
}

// holdOut reads what is there while the sink is busy, so that no writer has to
// wait for it, and drops the oldest records when that becomes too much. It returns false when the time
// for the end is up.
func (p *pump) holdOut() bool {
	if p.ctx.Err() != nil {
		if p.patience.IsZero() {
			p.patience = time.Now().Add(p.Patience)
		}
		if time.Now().After(p.patience) {
			return false
		}
	}
	p.overrun = true
	most := p.Backlog - 2*readSize // so that room has always room
	for {
		if len(p.split.buf)-p.split.off > most {
			p.drop(most - most/4)
		}
		n, err := p.source.poll(p.room())
		if n <= 0 || err != nil {
			break
		}
		p.took(n)
	}
	p.tally.tell(false)
	time.Sleep(busyWait)
	return true
}

// drop drops the oldest records until no more than keep bytes are pending.
func (p *pump) drop(keep int) {
	for len(p.split.buf)-p.split.off > keep {
		from := p.split.off
		if _, ok := p.split.next(true); !ok {
			break
		}
		p.notice.records++
		p.notice.bytes += p.split.off - from
		p.tally.records.Add(1)
		p.tally.lose(1, p.split.off-from)
		p.again = max(0, p.again-1)
	}
	p.store.setSpan(p.split.off, len(p.split.buf))
	p.store.setDoubt(p.again)
}

// lost are records that were dropped and not yet told of.
type lost struct{ records, bytes int }

func (l lost) record() Record {
	return Record{
		Priority: Warning,
		Message:  fmt.Sprintf("dropped %d records (%d bytes): the log took none for too long", l.records, l.bytes),
		Fields:   []Field{{FieldDropped, strconv.Itoa(l.records)}, {FieldDroppedBytes, strconv.Itoa(l.bytes)}},
	}
}
