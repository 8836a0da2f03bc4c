package daemon

import (
	"slices"
	"strings"
	"sync"
	"time"

	"seedbed/logpump"
)

const (
	// manyErrors is how many error lines are told at the end.
	manyErrors = 3
	// longestWord bounds each of them, in bytes: the whole line is in the log.
	longestWord = 300
	// recently is how old they may be at an end: an error of an hour ago explains none.
	recently = 10 * time.Second
)

// lastWords is a sink that hands records on and remembers the last errors and the
// last record of all, whether the sink behind takes them or not.
type lastWords struct {
	logpump.Sink
	mu     sync.Mutex
	errors []spoken
	last   string
}

// spoken is what was said, and when.
type spoken struct {
	text string
	at   time.Time
}

func (l *lastWords) Send(records []logpump.Record) (int, error) {
	n, err := l.Sink.Send(records)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range records {
		l.last = word(r.Message)
		if r.Priority > logpump.Error {
			continue
		}
		l.errors = slices.DeleteFunc(l.errors, func(s spoken) bool { return s.text == l.last })
		l.errors = append(l.errors, spoken{l.last, time.Now()})
		l.errors = l.errors[max(0, len(l.errors)-manyErrors):]
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

// of returns the last errors that are no older than age, and the last record when it is none of them.
func (l *lastWords) of(age time.Duration) string {
	lines := l.errorsOf(age)
	l.mu.Lock()
	defer l.mu.Unlock()
	said := func(s spoken) bool { return s.text == l.last }
	switch {
	case l.last == "" || slices.ContainsFunc(l.errors, said):
		return lines
	case lines == "":
		return l.last
	}
	return lines + "; " + l.last
}

// errorsOf returns the last errors that are no older than age.
func (l *lastWords) errorsOf(age time.Duration) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var lines []string
	for _, s := range l.errors {
		if time.Since(s.at) <= age {
			lines = append(lines, s.text)
		}
	}
	return strings.Join(lines, "; ")
}
