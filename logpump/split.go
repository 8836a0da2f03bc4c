package logpump

import (
	"bytes"
	"unicode/utf8"
)

// splitter cuts a byte stream into raw records: lines, glog lines with those that continue
// them, JSON values, and Go panics with their stacks. Blank lines between records are dropped.
// It is a value: a copy of it goes back to the place in the stream where it was made.
type splitter struct {
	format Format
	max    int

	buf  []byte // what is not yet cut, from off on; a record, or a later piece of one, begins there
	off  int
	mode mode // what the record at off is taken for
	scan int  // how many bytes behind off are known not to hold the end
	json jsonScanner
	part int // pieces of this record that are already out
}

// mode is what a record is taken for while its end is looked for.
type mode int

const (
	modeUnknown mode = iota
	modeLine
	modeJSON
	modePanic
	modeGroup
)

// raw is a record, or a piece of one that is too long.
type raw struct {
	text []byte // a part of the splitter's buffer
	mode mode
	part int  // 0 for a whole record, else the number of the piece, from 1
	last bool // the last piece
}

// pending says whether the beginning of a record waits for its end.
func (s *splitter) pending() bool { return s.off < len(s.buf) }

// complete says whether what is pending is a group that could end where it does.
func (s *splitter) complete() bool {
	return s.pending() && s.mode == modeGroup && s.buf[len(s.buf)-1] == '\n'
}

// next returns the next record; with flush also one whose end has not come.
func (s *splitter) next(flush bool) (raw, bool) {
	if s.part == 0 && s.mode == modeUnknown {
		s.skipBlank()
	}
	rest := s.buf[s.off:]
	if len(rest) == 0 {
		return raw{}, false
	}
	if s.mode == modeUnknown && !s.begin(rest, flush) {
		return raw{}, false
	}
	end, skip := s.end(rest, flush)
	switch {
	case end > s.max || end < 0 && len(rest) > s.max:
		return s.piece(rest[:cut(rest, s.max)]), true
	case end >= 0:
		return s.whole(rest[:end], end+skip), true
	case flush && s.mode == modeJSON:
		s.retake(modeLine)
		return s.next(flush)
	case flush:
		return s.whole(bytes.TrimRight(rest, "\r\n"), len(rest)), true
	}
	return raw{}, false
}

// end returns the length of the record at the beginning of rest and that of its
// terminator, or -1 if its end is not there yet.
func (s *splitter) end(rest []byte, flush bool) (end, skip int) {
	switch s.mode {
	case modeJSON:
		n, state := s.json.scan(rest, s.scan, flush)
		s.scan = n
		switch state {
		case jsonDone:
			return n, 0
		case jsonBad:
			s.retake(modeLine)
			return s.end(rest, flush)
		}
		return -1, 0
	case modePanic:
		return s.groupEnd(rest, looksLikeHeader, flush)
	case modeGroup:
		return s.groupEnd(rest, endsGroup, flush)
	}
	i := bytes.IndexByte(rest[s.scan:], '\n')
	if i < 0 {
		s.scan = len(rest)
		return -1, 0
	}
	end = s.scan + i
	if end > 0 && rest[end-1] == '\r' {
		return end - 1, 2
	}
	return end, 1
}

// begin decides what the record at the beginning of rest is; false when too
// little of it is there.
func (s *splitter) begin(rest []byte, flush bool) bool {
	isJSON, known := looksLikeJSON(rest)
	if s.format.hasJSON() && isJSON {
		s.retake(modeJSON)
		return true
	}
	known = known || !s.format.hasJSON()
	known = known && (len(rest) >= headLen || bytes.IndexByte(rest, '\n') >= 0)
	if !known && !flush && len(rest) <= s.max {
		return false
	}
	s.retake(modeLine)
	switch {
	case s.format.hasGLog() && looksLikePanic(rest):
		s.retake(modePanic)
	case s.format.hasGLog() && looksLikeGLog(rest):
		s.retake(modeGroup)
	}
	return true
}

// retake looks for the end of the record anew, taking it for m.
func (s *splitter) retake(m mode) {
	s.mode, s.scan, s.json = m, 0, jsonScanner{}
}

// whole takes a record, or its last piece, off the buffer.
func (s *splitter) whole(text []byte, length int) raw {
	r := raw{text: text, mode: s.mode}
	if s.part > 0 {
		r.part, r.last = s.part+1, true
	}
	s.off += length
	s.part = 0
	s.retake(modeUnknown)
	return r
}

// piece takes a piece of a record that is too long off the buffer.
func (s *splitter) piece(text []byte) raw {
	s.part++
	s.off += len(text)
	r := raw{text: text, mode: s.mode, part: s.part}
	if s.scan < len(text) && s.mode == modeJSON {
		s.retake(modeLine) // what a JSON scan has not seen cannot be made up for
	} else {
		s.scan = max(0, s.scan-len(text))
	}
	return r
}

func (s *splitter) skipBlank() {
	for s.off < len(s.buf) && (s.buf[s.off] == '\n' || s.buf[s.off] == '\r') {
		s.off++
	}
}

// cut returns where to cut b so that no piece is longer than limit and no UTF-8
// sequence is cut in two.
func cut(b []byte, limit int) int {
	for i := limit; i > limit-utf8.UTFMax && i > 0; i-- {
		if utf8.RuneStart(b[i]) {
			return i
		}
	}
	return limit
}
