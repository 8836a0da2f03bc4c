package logpump

import (
	"strings"
	"time"
)

// parseGLog reads a line with a glog header, "Lmmdd hh:mm:ss.uuuuuu pid
// file:line] message", as runsc's pkg/log/glog.go and github.com/golang/glog
// write it.
func (p *parser) parseGLog(line string) (Record, bool) {
	const timeEnd = len("I0131 15:04:05.000000")
	if len(line) < timeEnd+2 || line[timeEnd] != ' ' || !looksLikeGLog([]byte(line[:6])) {
		return Record{}, false
	}
	at, err := time.ParseInLocation("0102 15:04:05.000000", line[1:timeEnd], time.Local)
	if err != nil {
		return Record{}, false
	}
	place, message, ok := strings.Cut(line[timeEnd+1:], "]")
	if !ok {
		return Record{}, false
	}
	pid, source, ok := strings.Cut(strings.TrimLeft(place, " "), " ")
	if !ok || !isNumber(pid) {
		return Record{}, false
	}
	p.add(FieldPID, pid)
	p.addSource(source)
	return Record{
		Time:     withYear(at, p.now()),
		Priority: glogPriority(line[0]),
		Message:  strings.TrimPrefix(message, " "),
	}, true
}

// addSource adds the fields of a place in source, "file.go:12"; false when it is none.
func (p *parser) addSource(source string) bool {
	file, line, ok := cutLast(source, ':')
	if !ok || !isNumber(line) || strings.Contains(file, " ") {
		return false
	}
	p.add(FieldFile, file)
	p.add(FieldLine, line)
	return true
}

// glogPriority returns the priority of a glog level, -1 for what is none. runsc
// writes '?' for a level without a letter.
func glogPriority(level byte) int {
	switch level {
	case 'D':
		return Debug
	case 'I', '?':
		return Info
	case 'W':
		return Warning
	case 'E':
		return Error
	case 'F':
		return Critical
	}
	return -1
}

// withYear gives t, which has none, the year that brings it closest before now; a day ahead is
// allowed for clocks and time zones that differ.
func withYear(t, now time.Time) time.Time {
	t = t.AddDate(now.Year()-t.Year(), 0, 0)
	if t.After(now.Add(24 * time.Hour)) {
		t = t.AddDate(-1, 0, 0)
	}
	return t
}

func cutLast(s string, sep byte) (before, after string, found bool) {
	i := strings.LastIndexByte(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}

func isNumber(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
