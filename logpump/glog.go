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
	if len(line) < timeEnd+2 || line[timeEnd] != ' ' || !looksLikeGLog(line) {
		return Record{}, false
	}
	at, ok := p.glogTime(line[1:timeEnd])
	if !ok {
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
		Time:     at,
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

// glogTime reads "mmdd hh:mm:ss.uuuuuu" in local time. It has no year: it gets the
// one that brings it closest before now; a day ahead is allowed for clocks and time zones that differ.
func (p *parser) glogTime(s string) (time.Time, bool) {
	if s[4] != ' ' || s[7] != ':' || s[10] != ':' || s[13] != '.' {
		return time.Time{}, false
	}
	var v [6]int
	for i, at := range [...]struct{ from, to, most int }{{0, 2, 12}, {2, 4, 31}, {5, 7, 23}, {8, 10, 59}, {11, 13, 60}, {14, 20, 999999}} {
		for _, c := range []byte(s[at.from:at.to]) {
			if c < '0' || c > '9' {
				return time.Time{}, false
			}
			v[i] = v[i]*10 + int(c-'0')
		}
		if v[i] > at.most {
			return time.Time{}, false
		}
	}
	now := p.now()
	t := time.Date(now.Year(), time.Month(v[0]), v[1], v[2], v[3], v[4], v[5]*1000, time.Local)
	if t.After(now.Add(24 * time.Hour)) {
		t = t.AddDate(-1, 0, 0)
	}
	return t, v[0] > 0 && v[1] > 0
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
