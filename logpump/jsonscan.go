package logpump

// jsonScanner finds the end of a JSON object in a stream without decoding it. An
// emitter may leave out the newline behind a value, or write it a moment later.
type jsonScanner struct {
	depth    int
	inString bool
	escaped  bool
	done     bool // the end was found, at the place where the last scan came to
}

type jsonState int

const (
	jsonMore jsonState = iota // the end has not come
	jsonDone                  // the object ends here
	jsonBad                   // this is no JSON
)

// scan goes on at b[from:] and returns how far it came. A line inside of the object that begins
// like another record ends the attempt, so that half an object cannot swallow what
// others write.
func (j *jsonScanner) scan(b []byte, from int, flush bool) (int, jsonState) {
	if j.done {
		return from, jsonDone
	}
	for i := from; i < len(b); i++ {
		c := b[i]
		if j.inString {
			switch {
			case j.escaped:
				j.escaped = false
			case c == '\\':
				j.escaped = true
			case c == '"':
				j.inString = false
			case c < ' ':
				return i, jsonBad
			}
			continue
		}
		switch c {
		case '"':
			j.inString = true
		case '{', '[':
			j.depth++
		case '}', ']':
			if j.depth--; j.depth <= 0 {
				j.done = true
				return i + 1, jsonDone
			}
		case '\n':
			if len(b)-i-1 < headLen && !flush {
				return i, jsonMore
			}
			if looksLikeHeader(b[i+1:]) {
				return i, jsonBad
			}
		case 0:
			return i, jsonBad
		}
	}
	return len(b), jsonMore
}
