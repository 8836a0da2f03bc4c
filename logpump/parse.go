package logpump

import (
	"strconv"
	"strings"
	"time"
	"unsafe"
)

// parser makes records of raw ones. It never fails: what has no known form is
// text of priority [Info].
type parser struct {
	format Format
	prefix string
	now    func() time.Time

	fields []Field  // of the records since reset, reused
	first  int      // where those of this record begin
	names  []string // reused from record to record
	head   Record   // of the first piece of a record in pieces
}

// reset says that the records that parse has returned are no longer used.
func (p *parser) reset() { p.fields = p.fields[:0] }

// parse returns the record that r holds. Its strings are r's bytes wherever nothing
// had to be changed. Pieces of one record share the priority, time and fields of its first.
func (p *parser) parse(r raw) Record {
	if r.part > 1 {
		rec := p.head
		rec.Message = cleanText(view(r.text))
		return p.withPart(rec, r)
	}
	p.first = len(p.fields)
	rec := p.parseText(view(r.text), r.mode)
	rec.Message = cleanText(rec.Message)
	rec.Fields = p.fields[p.first:len(p.fields):len(p.fields)]
	if r.part == 0 {
		return rec
	}
	p.keepHead(rec)
	return p.withPart(rec, r)
}

// view returns b as a string without a copy of it.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// keepHead keeps what the later pieces of a record need to know of its first.
func (p *parser) keepHead(rec Record) {
	p.head = Record{Time: rec.Time, Priority: rec.Priority, Fields: make([]Field, len(rec.Fields))}
	for i, f := range rec.Fields {
		p.head.Fields[i] = Field{f.Name, strings.Clone(f.Value)}
	}
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
	case p.format.hasGLog():
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
