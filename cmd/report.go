package cmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// pipeWriter is standard output as the contract has it: once the reader has
// gone, what is written to it is dropped and the work goes on. Several goroutines
// may write to it.
type pipeWriter struct {
	w      io.Writer
	lock   sync.Mutex
	closed bool
}

func (p *pipeWriter) Write(b []byte) (int, error) {
	p.lock.Lock()
	defer p.lock.Unlock()
	if p.closed {
		return len(b), nil
	}
	n, err := p.w.Write(b)
	if errors.Is(err, unix.EPIPE) {
		p.closed = true
		return len(b), nil
	}
	return n, err
}

// printJSON prints the one document of a run with -o json.
func (g *globals) printJSON(document any) error {
	g.printed = true
	encoder := json.NewEncoder(g.streams.Out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(document)
}

// errorDocument is what -o json prints for a run that has no other result.
type errorDocument struct {
	Schema string `json:"schema"`
	Error  struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Hint    string `json:"hint,omitempty"`
	} `json:"error"`
}

// reportError prints a run's error and its advice, on lines of their own; with
// -o json also as the document on standard output, unless there is one already.
func (g *globals) reportError(err error) {
	var reported codeError
	if errors.As(err, &reported) {
		return
	}
	advice := hint(err)
	fmt.Fprintf(g.streams.Err, "seedbed: %s\n", oneLine(err))
	if advice != "" {
		fmt.Fprintf(g.streams.Err, "seedbed: hint: %s\n", printable(advice))
	}
	if g.json() && !g.printed {
		document := errorDocument{Schema: "seedbed.error/v1"}
		document.Error.Code = exitCode(err)
		document.Error.Message = err.Error()
		document.Error.Hint = advice
		_ = g.printJSON(document)
	}
}

// count is a number with its noun.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// oneLine joins the lines of a joined error.
func oneLine(err error) string {
	lines := strings.Split(err.Error(), "\n")
	for i := range lines {
		lines[i] = printable(lines[i])
	}
	return strings.Join(lines, "; ")
}

// printable escapes what a terminal would obey: control characters, direction
// marks and bytes that are not UTF-8. Names from archives pass through it
// wherever they are shown.
func printable(s string) string {
	if isPrintable(s) {
		return s
	}
	var out strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&out, `\x%02x`, s[i])
		case unicode.IsPrint(r):
			out.WriteRune(r)
		case r < 0x80:
			fmt.Fprintf(&out, `\x%02x`, r)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
		i += size
	}
	return out.String()
}

func isPrintable(s string) bool {
	for i, r := range s {
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(s[i:]); size == 1 {
				return false
			}
		}
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}
