package logpump

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// parseJSON reads an object as logrus' and containerd's JSON format, zap, and
// runsc's json and json-k8s formats write it. Keys that mean nothing here become
// fields, and stay in the message for those who read no fields. What turns out
// to be no JSON is text.
func (p *parser) parseJSON(text string) Record {
	var object map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &object) != nil {
		return Record{Priority: Info, Message: text}
	}
	rec := Record{Priority: Info}
	message, found := take(object, "msg", "message", "log")
	if level, ok := take(object, "level", "severity"); ok {
		rec.Priority, _ = levelPriority(level)
	}
	if at, ok := take(object, "time", "ts", "timestamp"); ok {
		rec.Time = parseTime(at)
	}
	if pid, ok := take(object, "pid"); ok && isNumber(pid) {
		p.add(FieldPID, pid)
	}
	if source, ok := take(object, "caller", "file"); ok {
		p.addSource(source)
	} else if source, after, ok := strings.Cut(message, "] "); ok && p.addSource(source) {
		message = after // json-k8s has the place in its message
	}
	more := p.addRest(object)
	if !found {
		rec.Message = text
		return rec
	}
	rec.Message = joinMessage(message, more)
	return rec
}

// addRest adds what is left in object as fields, in the order of the keys, and
// returns it as pairs.
func (p *parser) addRest(object map[string]json.RawMessage) []string {
	var pairs []string
	p.names = p.names[:0]
	for key := range object {
		p.names = append(p.names, key)
	}
	slices.Sort(p.names)
	for _, key := range p.names {
		p.addKey(key, plain(object[key]))
		pairs = append(pairs, key+"="+string(object[key]))
	}
	return pairs
}

// take removes the first of keys that is there and returns its value as text.
func take(object map[string]json.RawMessage, keys ...string) (string, bool) {
	for _, key := range keys {
		if value, ok := object[key]; ok {
			delete(object, key)
			return plain(value), true
		}
	}
	return "", false
}

// plain returns a string's content and any other value as it is written.
func plain(value json.RawMessage) string {
	var s string
	if json.Unmarshal(value, &s) == nil {
		return s
	}
	return string(value)
}

// parseTime reads RFC 3339, or seconds since 1970 as zap writes them; zero for
// anything else.
func parseTime(s string) time.Time {
	if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
		return t
	}
	var seconds float64
	if json.Unmarshal([]byte(s), &seconds) != nil || seconds <= 0 || seconds > 1e11 {
		return time.Time{}
	}
	return time.UnixMicro(int64(seconds * 1e6))
}
