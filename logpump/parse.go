package logpump

import (
	"strconv"
	"time"
)

// parser makes records of raw ones. It never fails: what has no known form is
// text of priority [Info].
type parser struct {
	format Format
	prefix string
	now    func() time.Time

	fields []Field  // reused from record to record
	names  []string // likewise
	head   Record   // of the first piece of a record in pieces
}

// parse returns the record that r holds. Pieces of one record share the
// priority, time and fields of its first.
func (p *parser) parse(r raw) Record {
	if r.part > 1 {
		rec := p.head
		rec.Message = cleanText(string(r.text))
		return p.withPart(rec, r)
	}
	p.fields = p.fields[:0]
	rec := p.parseText(string(r.text), r.mode)
	rec.Message = cleanText(rec.Message)
	rec.Fields = p.fields
	if r.part == 0 {
		return rec
	}
	p.head = rec
	return p.withPart(rec, r)
}

func (p *parser) withPart(rec Record, r raw) Record {
	part := strconv.Itoa(r.part)
	if r.last {
		part += "/" + part
	}
	n := len(rec.Fields)
	rec.Fields = append(rec.Fields[:n:n], Field{FieldPart, part})
	return rec
}

func (p *parser) parseText(text string, m mode) Record {
	switch {
	case m == modeJSON:
		return p.parseJSON(text)
	case m == modePanic:
		return Record{Priority: Critical, Message: text}
	case p.format == Auto || p.format == Glog:
		if rec, ok := p.parseGLog(text); ok {
			return rec
		}
		if rec, ok := p.parseLogfmt(text); ok {
			return rec
		}
	}
	return Record{Priority: Info, Message: text}
}

func (p *parser) add(name, value string) {
	if value != "" {
		p.fields = append(p.fields, Field{name, cleanText(value)})
	}
}

// addKey adds a record's own key as a field.
func (p *parser) addKey(key, value string) {
	p.add(p.prefix+fieldName(key), value)
}

// levelPriority returns the priority of a level's name as logrus, zap, slog and runsc
// write it, and false for a name that none of them uses.
func levelPriority(level string) (int, bool) {
	switch level {
	case "trace", "TRACE", "debug", "DEBUG":
		return Debug, true
	case "info", "INFO":
		return Info, true
	case "warn", "WARN", "warning", "WARNING":
		return Warning, true
	case "error", "ERROR":
		return Error, true
	case "fatal", "FATAL", "panic", "PANIC", "dpanic", "DPANIC":
		return Critical, true
	}
	return Info, false
}
