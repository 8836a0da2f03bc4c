package daemon

import (
	"slices"
	"strings"
	"sync"

	"seedbed/logpump"
)

const (
	// manyErrors is how many error lines are told at the end.
	manyErrors = 3
	// longestWord bounds each of them, in bytes.
	longestWord = 600
)

// lastWords is a sink that hands records on and remembers the last errors and the
// last record of all, whether the sink behind takes them or not.
type lastWords struct {
	logpump.Sink
	mu     sync.Mutex
	errors []string
	last   string
}

func (l *lastWords) Send(records []logpump.Record) (int, error) {
	n, err := l.Sink.Send(records)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range records {
		l.last = word(r.Message)
		if r.Priority <= logpump.Error && !slices.Contains(l.errors, l.last) {
			l.errors = append(l.errors, l.last)
			l.errors = l.errors[max(0, len(l.errors)-manyErrors):]
		}
	}
	return n, err
}

// word is the beginning of a message, as a string of its own.
func word(message string) string {
	if len(message) > longestWord {
		return strings.ToValidUTF8(message[:longestWord], "") + "…"
	}
	return strings.Clone(message)
}

func (l *lastWords) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	words := l.errors
	if l.last != "" && !slices.Contains(words, l.last) {
		words = append(slices.Clone(words), l.last)
	}
	return strings.Join(words, "; ")
}
