package logpump

import (
	"strings"
	"unicode/utf8"
)

// maxFieldName is journald's limit for the name of a field in bytes
// (systemd.journal-fields(7)).
const maxFieldName = 64

// cleanText returns s as valid UTF-8 without control characters: bytes that
// are no UTF-8 and control characters other than tab and newline become \xNN. A
// carriage return at the end of a line is dropped.
func cleanText(s string) string {
	if isClean(s) {
		return s
	}
	s = strings.ReplaceAll(s, "\r\n", "\n")
	var b strings.Builder
	b.Grow(len(s) + 16)
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 || isControl(r) {
			for _, c := range []byte(s[i : i+size]) {
				b.WriteString(`\x`)
				b.WriteByte(hexDigits[c>>4])
				b.WriteByte(hexDigits[c&15])
			}
		} else {
			b.WriteString(s[i : i+size])
		}
		i += size
	}
	return b.String()
}

const hexDigits = "0123456789abcdef"

// isClean is the quick way for what nearly every record is: plain ASCII.
func isClean(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' && c != '\n' || c >= 0x7f {
			return false
		}
	}
	return true
}

// isControl holds for the C0 and C1 control characters, and for the ones that
// change the direction of what a terminal shows.
func isControl(r rune) bool {
	switch {
	case r == '\t' || r == '\n':
		return false
	case r < ' ', r >= 0x7f && r < 0xa0:
		return true
	case r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
		return true
	}
	return false
}

// fieldName makes the name of a journal field out of a record's key.
func fieldName(key string) string {
	b := []byte(key[:min(len(key), maxFieldName/2)])
	for i, c := range b {
		switch {
		case c >= 'a' && c <= 'z':
			b[i] = c - 'a' + 'A'
		case c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		default:
			b[i] = '_'
		}
	}
	return string(b)
}

// validFieldName reports whether journald takes name from a client.
func validFieldName(name string) bool {
	if name == "" || len(name) > maxFieldName || name[0] == '_' || name[0] >= '0' && name[0] <= '9' {
		return false
	}
	for i := range len(name) {
		c := name[i]
		if (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return true
}
