package logpump

import (
	"encoding/json"
	"io"
	"strings"
	"time"
)

// NewJSON returns a sink that writes each record to w as one line with a JSON object: "time" (RFC 3339; when it was
// written, if the record has none), "level" (DEBUG, INFO, WARN, ERROR; as log/slog names them), "identifier", "msg", and
// the record's fields under their names. Errors are those of [NewText].
func NewJSON(w io.Writer, identifier string) Sink {
	j := object{identifier: cleanText(identifier), now: time.Now}
	return newStream(w, j.encode)
}

// object is the form for programs.
type object struct {
	identifier string
	now        func() time.Time
}

func (o object) encode(b []byte, r Record) ([]byte, error) {
	at := r.Time
	if at.IsZero() {
		at = o.now()
	}
	b = append(b, `{"time":"`...)
	b = at.AppendFormat(b, time.RFC3339Nano)
	b = append(b, `","level":"`+slogLevel(r.Priority)+`"`...)
	for _, f := range append([]Field{{"identifier", o.identifier}, {"msg", r.Message}}, r.Fields...) {
		value, err := quote(f.Value)
		if err != nil {
			return b, err
		}
		b = append(b, `,"`+f.Name+`":`+value...)
	}
	return append(b, "}\n"...), nil
}

// quote returns s as JSON, with < and > as they are.
func quote(s string) (string, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(s)
	return strings.TrimSuffix(b.String(), "\n"), err
}

// slogLevel is the name of the level in log/slog that is closest to a priority.
func slogLevel(priority int) string {
	switch {
	case priority <= Error:
		return "ERROR"
	case priority == Warning:
		return "WARN"
	case priority >= Debug:
		return "DEBUG"
	}
	return "INFO"
}
