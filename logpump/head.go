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

// looksLikeGLog reports whether b begins as glog's header does, up to the minutes:
// "I0131 15:04:".
func looksLikeGLog[T []byte | string](b T) bool {
	const form = "?0000 00:00:"
	if len(b) < len(form) || glogPriority(b[0]) < 0 {
		return false
	}
	for i := 1; i < len(form); i++ {
		digit := b[i] >= '0' && b[i] <= '9'
		if form[i] == '0' && !digit || form[i] != '0' && b[i] != form[i] {
			return false
		}
	}
	return true
}

// endsGroup reports whether a line does not continue the glog line before it.
func endsGroup(b []byte) bool { return looksLikeHeader(b) || looksLikePanic(b) }

// groupEnd returns the end of a record of many lines, such as a panic's stack: before
// the next line for which ends holds. Another process may write in between; what
// follows then is taken with the record of that one, or as text.
func (s *splitter) groupEnd(rest []byte, ends func([]byte) bool, flush bool) (end, skip int) {
	for s.scan < len(rest) {
		i := bytes.IndexByte(rest[s.scan:], '\n')
		if i < 0 {
			break
		}
		next := s.scan + i + 1
		if len(rest)-next < headLen && !flush {
			return -1, 0
		}
		if ends(rest[next:]) {
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
