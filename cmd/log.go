package cmd

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// newLogHandler returns the handler for --log-level, --log-format and --quiet.
func newLogHandler(g *globals) slog.Handler {
	w, level := g.streams.Err, logLevel(g)
	switch {
	case g.logFormat == "json":
		return slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level})
	case g.logsToJournal():
		return &lineHandler{w: w, level: level, prefix: journalPrefix, lock: &sync.Mutex{}}
	}
	return &lineHandler{w: w, level: level, prefix: textPrefix, lock: &sync.Mutex{}}
}

func logLevel(g *globals) slog.Level {
	if g.quiet {
		return slog.LevelError
	}
	var level slog.Level
	_ = level.UnmarshalText([]byte(g.logLevel)) // prepare has refused what is no level
	return level
}

// logsToJournal reports whether logs are the journal's: because --log-format says
// so, or because standard error is its stream.
func (g *globals) logsToJournal() bool {
	return g.logFormat == "journal" || g.logFormat == "auto" && isJournal(g.streams.Err)
}

// isJournal reports whether w is the journal's stream: JOURNAL_STREAM holds its
// device and inode (systemd.exec(5)).
func isJournal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return false
	}
	return os.Getenv("JOURNAL_STREAM") == fmt.Sprintf("%d:%d", stat.Dev, stat.Ino)
}

// lineHandler writes one line a record, for people and for the journal.
type lineHandler struct {
	w      io.Writer
	level  slog.Leveler
	prefix func(slog.Level) string
	attrs  string // those of every record, as they are written
	group  string // stands before the names of attributes: "a.b."
	lock   *sync.Mutex
}

// textPrefix is how a line for people begins.
func textPrefix(level slog.Level) string {
	switch {
	case level >= slog.LevelError:
		return "seedbed: error: "
	case level >= slog.LevelWarn:
		return "seedbed: warning: "
	}
	return "seedbed: "
}

// journalPrefix is the priority that the journal takes off the line
// (sd-daemon(3)).
func journalPrefix(level slog.Level) string {
	switch {
	case level >= slog.LevelError:
		return "<3>"
	case level >= slog.LevelWarn:
		return "<4>"
	case level >= slog.LevelInfo:
		return "<6>"
	}
	return "<7>"
}

func (h *lineHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.level.Level()
}

func (h *lineHandler) Handle(_ context.Context, record slog.Record) error {
	var line strings.Builder
	line.WriteString(h.prefix(record.Level))
	line.WriteString(printable(record.Message))
	line.WriteString(h.attrs)
	record.Attrs(func(attr slog.Attr) bool {
		writeAttr(&line, h.group, attr)
		return true
	})
	line.WriteByte('\n')
	h.lock.Lock()
	defer h.lock.Unlock()
	_, err := io.WriteString(h.w, line.String())
	return err
}

func writeAttr(line *strings.Builder, group string, attr slog.Attr) {
	value := attr.Value.Resolve().String()
	if value == "" || strings.ContainsAny(value, " \"=\n\t") || printable(value) != value {
		value = fmt.Sprintf("%q", value)
	}
	fmt.Fprintf(line, " %s%s=%s", group, attr.Key, value)
}

func (h *lineHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := *h
	var more strings.Builder
	for _, attr := range attrs {
		writeAttr(&more, h.group, attr)
	}
	with.attrs += more.String()
	return &with
}

func (h *lineHandler) WithGroup(name string) slog.Handler {
	with := *h
	with.group += name + "."
	return &with
}
