package logpump

import "bytes"

// headLen is how many bytes tell what a record is.
const headLen = len("fatal error: ")

// looksLikeJSON reports whether b begins as a JSON object does; known is false
// when more of it has to come to tell.
func looksLikeJSON(b []byte) (yes, known bool) {
	if b[0] != '{' {
		return false, true
	}
	rest := bytes.TrimLeft(b[1:], " \t\r\n")
	if len(rest) == 0 {
		return false, false
	}
	return rest[0] == '"' || rest[0] == '}', true
}

// looksLikePanic reports whether b begins as the Go runtime's report of a fatal
// error does.
func looksLikePanic(b []byte) bool {
	return bytes.HasPrefix(b, []byte("panic: ")) || bytes.HasPrefix(b, []byte("fatal error: "))
}

// looksLikeHeader reports whether a line begins a record of its own for certain:
// a glog header, a JSON object, or logrus' time.
func looksLikeHeader(b []byte) bool {
	return looksLikeGLog(b) || bytes.HasPrefix(b, []byte(`time="`)) || bytes.HasPrefix(b, []byte(`{"`))
}

// looksLikeGLog reports whether b begins with a level, month and day: "I0131 ".
func looksLikeGLog(b []byte) bool {
	if len(b) < 6 || b[5] != ' ' || glogPriority(b[0]) < 0 {
		return false
	}
	for _, c := range b[1:5] {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// panicEnd returns the end of a panic's stack: the line before the next record
// with a header of its own. Another process may write in between; what follows
// then is taken as text.
func (s *splitter) panicEnd(rest []byte, flush bool) (end, skip int) {
	for s.scan < len(rest) {
		i := bytes.IndexByte(rest[s.scan:], '\n')
		if i < 0 {
			break
		}
		next := s.scan + i + 1
		if len(rest)-next < headLen && !flush {
			return -1, 0
		}
		if looksLikeHeader(rest[next:]) {
			end = len(bytes.TrimRight(rest[:next], "\r\n"))
			return end, next - end
		}
		s.scan = next
	}
	if !flush {
		return -1, 0
	}
	end = len(bytes.TrimRight(rest, "\r\n"))
	return end, len(rest) - end
}
