package preseed

import "sync"

// EventKind says what an [Event] is about.
type EventKind string

// The kinds of events.
const (
	EventStart  EventKind = "start"  // the bundles are known: Bundles is set
	EventRead   EventKind = "read"   // a bundle's index was read
	EventDecide EventKind = "decide" // what has to be copied is known: Bytes is set
	EventCopy   EventKind = "copy"   // some bytes of a blob were written
	EventUnpack EventKind = "unpack" // a layer of a bundle was unpacked
	EventBundle EventKind = "bundle" // a bundle is done, with Status
)

// Event is one step of an import, for progress. The sums are those at the time of the event.
type Event struct {
	Kind                 EventKind
	Bundle, Namespace    string // which bundle; empty where it is about all
	Status               Status // of the bundle that is done
	Reason               string // why it has that status, for people
	BundlesDone, Bundles int
	BytesDone, Bytes     int64 // bytes to write to the store and layers to unpack, known from EventDecide on
}

// progress keeps the sums and hands out events one at a time.
type progress struct {
	mu   sync.Mutex
	tell func(Event)
	sum  Event
}

func (p *progress) event(kind EventKind, change func(*Event)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.sum
	e.Kind = kind
	if change != nil {
		change(&e)
	}
	p.sum = Event{BundlesDone: e.BundlesDone, Bundles: e.Bundles, BytesDone: e.BytesDone, Bytes: e.Bytes}
	p.tell(e)
}

func (p *progress) copied(n int64) {
	p.event(EventCopy, func(e *Event) { e.BytesDone += n })
}
