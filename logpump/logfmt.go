package logpump

import (
	"strconv"
	"strings"
	"time"
)

// parseLogfmt reads a line of key=value pairs as logrus' text format and
// containerd write it: time="…" level=info msg="…" error="…". The pairs behind
// the message become fields, and stay in the message for those who read no fields.
func (p *parser) parseLogfmt(line string) (Record, bool) {
	if !strings.HasPrefix(line, "time=") {
		return Record{}, false
	}
	rec := Record{Priority: Info}
	seen := false
	var more []string
	for rest := line; rest != ""; {
		key, value, after, ok := nextPair(rest)
		if !ok {
			p.fields = p.fields[:p.first]
			return Record{}, false
		}
		switch key {
		case "time":
			rec.Time, _ = time.Parse(time.RFC3339Nano, value)
		case "level":
			rec.Priority, _ = levelPriority(value)
		case "msg":
			rec.Message, seen = value, true
		default:
			p.addKey(key, value)
			more = append(more, rest[:len(rest)-len(after)])
		}
		rest = strings.TrimLeft(after, " ")
	}
	if !seen {
		p.fields = p.fields[:p.first]
		return Record{}, false
	}
	rec.Message = joinMessage(rec.Message, more)
	return rec, true
}

func joinMessage(message string, more []string) string {
	if len(more) == 0 {
		return message
	}
	return strings.TrimLeft(message+" "+strings.Join(more, " "), " ")
}

// nextPair cuts the first key=value off s; the value may be a Go string literal.
func nextPair(s string) (key, value, rest string, ok bool) {
	key, rest, ok = strings.Cut(s, "=")
	if !ok || key == "" || strings.ContainsAny(key, " \"") {
		return "", "", s, false
	}
	if !strings.HasPrefix(rest, `"`) {
		end := strings.IndexByte(rest, ' ')
		if end < 0 {
			end = len(rest)
		}
		return key, rest[:end], rest[end:], true
	}
	literal, err := strconv.QuotedPrefix(rest)
	if err != nil {
		return "", "", s, false
	}
	value, err = strconv.Unquote(literal)
	return key, value, rest[len(literal):], err == nil
}
