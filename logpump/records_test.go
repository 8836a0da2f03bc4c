package logpump

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// show writes a record the way the tables below name it.
func show(r Record) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d", r.Priority)
	if !r.Time.IsZero() {
		fmt.Fprintf(&b, " @%s", r.Time.UTC().Format("2006-01-02T15:04:05.999999Z"))
	}
	for _, f := range r.Fields {
		fmt.Fprintf(&b, " %s=%s", f.Name, f.Value)
	}
	return b.String() + "|" + r.Message
}

func TestRecords(t *testing.T) {
	local := time.Date(2026, 1, 31, 15, 4, 5, 1000, time.Local).UTC().Format("2006-01-02T15:04:05.999999Z")
	lastYear := time.Date(2025, 12, 31, 23, 59, 59, 0, time.Local).UTC().Format("2006-01-02T15:04:05.999999Z")
	tests := []struct {
		name  string
		input string
		o     Options
		want  []string
	}{
		{
			name: "glog", input: "I0131 15:04:05.000001       7 boot.go:12] hello [x] y\nW0131 15:04:05.000001 123456 a_b.go:1] \nD0131 15:04:05.000001       1 ???:0] d\n",
			want: []string{
				"6 @" + local + " SYSLOG_PID=7 CODE_FILE=boot.go CODE_LINE=12|hello [x] y",
				"4 @" + local + " SYSLOG_PID=123456 CODE_FILE=a_b.go CODE_LINE=1|",
				"7 @" + local + " SYSLOG_PID=1 CODE_FILE=??? CODE_LINE=0|d",
			},
		},
		{
			name: "glog of the year before", input: "E1231 23:59:59.000000 7 a.go:1] late\n",
			want: []string{"3 @" + lastYear + " SYSLOG_PID=7 CODE_FILE=a.go CODE_LINE=1|late"},
		},
		{
			name: "nearly glog is text", input: "I0131 nothing else\nX0131 15:04:05.000001 7 a.go:1] x\nI9999 99:99:99.999999 7 a.go:1] x\n",
			want: []string{"6|I0131 nothing else", "6|X0131 15:04:05.000001 7 a.go:1] x", "6|I9999 99:99:99.999999 7 a.go:1] x"},
		},
		{name: "blank lines and CRLF", input: "\n\r\na\r\n\n\nb\n", want: []string{"6|a", "6|b"}},
		{name: "no newline at the end", input: "a\nb", want: []string{"6|a", "6|b"}},
		{
			name: "runsc's JSON without newlines", input: `{"msg":"a { \" }","level":"warning","time":"2026-01-31T15:04:05Z"}{"msg":"b","level":"debug"}` + "\n\n" + `{"msg":"c"}`,
			want: []string{"4 @2026-01-31T15:04:05Z|a { \" }", "7|b", "6|c"},
		},
		{
			name: "runsc's json-k8s", input: `{"log":"boot.go:12] hello","level":"info","time":"2026-01-31T15:04:05.5Z"}`,
			want: []string{"6 @2026-01-31T15:04:05.5Z CODE_FILE=boot.go CODE_LINE=12|hello"},
		},
		{
			name: "zap's JSON", input: `{"level":"error","ts":"2026-01-31T15:04:05.000001Z","caller":"etcdmain/etcd.go:20","msg":"bad","peer-id":"8e9","n":[1, 2]}` + "\n",
			want: []string{`3 @2026-01-31T15:04:05.000001Z CODE_FILE=etcdmain/etcd.go CODE_LINE=20 LOG_N=[1, 2] LOG_PEER_ID=8e9|bad n=[1, 2] peer-id="8e9"`},
		},
		{name: "zap's time as a number", input: `{"ts":1769871845.5,"msg":"x"}`, want: []string{"6 @2026-01-31T15:04:05.5Z|x"}},
		{name: "JSON over several lines", input: "{\n  \"msg\": \"a\",\n  \"b\": {}\n}\nnext\n", want: []string{"6 LOG_B={}|a b={}", "6|next"}},
		{name: "JSON without a message", input: `{"a":1}` + "\n", want: []string{`6 LOG_A=1|{"a":1}`}},
		{
			name: "JSON cut off by another record", input: "{\"msg\":\n\"x\",\nI0131 15:04:05.000001 7 a.go:1] y\nrest\n",
			want: []string{"6|{\"msg\":", "6|\"x\",", "6 @" + local + " SYSLOG_PID=7 CODE_FILE=a.go CODE_LINE=1|y\nrest"},
		},
		{name: "JSON with a raw newline in a string", input: "{\"msg\":\"x\ny\"}\n", want: []string{`6|{"msg":"x`, `6|y"}`}},
		{name: "JSON that never ends", input: "{\"msg\":\"x\"\nabc", want: []string{`6|{"msg":"x"`, "6|abc"}},
		{name: "a brace is not JSON", input: "{a} b\n{\nx\n", want: []string{"6|{a} b", "6|{", "6|x"}},
		{name: "bad JSON between braces", input: `{"a":}` + "\n", want: []string{`6|{"a":}`}},
		{
			name: "containerd's text", o: Options{FieldPrefix: "CONTAINERD_"},
			input: `time="2026-01-31T15:04:05.123456789Z" level=error msg="load \"x\" failed" error="a=b \n c" id=io.containerd.x.v1` + "\n",
			want:  []string{`3 @2026-01-31T15:04:05.123456Z CONTAINERD_ERROR=a=b ` + "\n" + ` c CONTAINERD_ID=io.containerd.x.v1|load "x" failed error="a=b \n c" id=io.containerd.x.v1`},
		},
		{name: "containerd's text without more", input: "time=\"2026-01-31T15:04:05Z\" level=warning msg=short\n", want: []string{"4 @2026-01-31T15:04:05Z|short"}},
		{name: "logfmt without a message is text", input: "time=1 x=2\ntime=\"open level=info msg=x\n", want: []string{"6|time=1 x=2", `6|time="open level=info msg=x`}},
		{
			name: "fields cannot pose as the journal's", o: Options{FieldPrefix: "CONTAINERD_"}, input: `time="x" level=info msg=m _PID=1 MESSAGE=2 a.b=3` + "\n",
			want: []string{"6 CONTAINERD__PID=1 CONTAINERD_MESSAGE=2 CONTAINERD_A_B=3|m _PID=1 MESSAGE=2 a.b=3"},
		},
		{
			name: "a spec dump is one record", input: "D0131 15:04:05.000001 7 a.go:1] Spec:\n{\n  \"args\": [\n    \"sh\"\n  ]\n}\nI0131 15:04:05.000001 7 a.go:1] y\n",
			want: []string{"7 @" + local + " SYSLOG_PID=7 CODE_FILE=a.go CODE_LINE=1|Spec:\n{\n  \"args\": [\n    \"sh\"\n  ]\n}", "6 @" + local + " SYSLOG_PID=7 CODE_FILE=a.go CODE_LINE=1|y"},
		},
		{
			name: "a stack in a glog record", input: "W0131 15:04:05.000001 7 a.go:1] stuck:\n\tTask 1\nSearch for 'goroutine'\ngoroutine 1 [running]:\nmain.main()\n\t/x/y.go:5\n\ntime=\"2026-01-31T15:04:05Z\" level=info msg=m\n",
			want: []string{"4 @" + local + " SYSLOG_PID=7 CODE_FILE=a.go CODE_LINE=1|stuck:\n\tTask 1\nSearch for 'goroutine'\ngoroutine 1 [running]:\nmain.main()\n\t/x/y.go:5", "6 @2026-01-31T15:04:05Z|m"},
		},
		{
			name: "another writer within a group", input: "I0131 15:04:05.000001 7 a.go:1] A:\n  1\nE0131 15:04:05.000001 8 b.go:1] B\n  2\n",
			want: []string{"6 @" + local + " SYSLOG_PID=7 CODE_FILE=a.go CODE_LINE=1|A:\n  1", "3 @" + local + " SYSLOG_PID=8 CODE_FILE=b.go CODE_LINE=1|B\n  2"},
		},
		{
			name: "a panic behind a glog line is its own", input: "I0131 15:04:05.000001 7 a.go:1] x\npanic: boom\n\ngoroutine 1:\n",
			want: []string{"6 @" + local + " SYSLOG_PID=7 CODE_FILE=a.go CODE_LINE=1|x", "2|panic: boom\n\ngoroutine 1:"},
		},
		{
			name: "pieces of a group keep its lines", o: Options{MaxRecord: 40}, input: "I0131 15:04:05.000001 7 a.go:1] 12345678\n  abcdefgh\n  ijk\nI0131 15:04:05.000001 7 a.go:1] y\n",
			want: []string{"6 @" + local + " SYSLOG_PID=7 CODE_FILE=a.go CODE_LINE=1 RECORD_PART=1|12345678", "6 @" + local + " SYSLOG_PID=7 CODE_FILE=a.go CODE_LINE=1 RECORD_PART=2/2|\n  abcdefgh\n  ijk", "6 @" + local + " SYSLOG_PID=7 CODE_FILE=a.go CODE_LINE=1|y"},
		},
		{
			name: "a panic with its stack", input: "panic: boom\n\ngoroutine 1 [running]:\nmain.main()\n\t/x/y.go:5 +0x1d\nexit status 2\nI0131 15:04:05.000001 7 a.go:1] y\n",
			want: []string{"2|panic: boom\n\ngoroutine 1 [running]:\nmain.main()\n\t/x/y.go:5 +0x1d\nexit status 2", "6 @" + local + " SYSLOG_PID=7 CODE_FILE=a.go CODE_LINE=1|y"},
		},
		{name: "a panic at the end", input: "fatal error: all goroutines are asleep\n\ngoroutine 1:\n", want: []string{"2|fatal error: all goroutines are asleep\n\ngoroutine 1:"}},
		{
			name: "text takes lines as they are", o: Options{Format: Text}, input: "panic: x\nI0131 15:04:05.000001 7 a.go:1] y\n{\"msg\":\"a\"}\n",
			want: []string{"6|panic: x", "6|I0131 15:04:05.000001 7 a.go:1] y", `6|{"msg":"a"}`},
		},
		{name: "NUL, control bytes, invalid UTF-8", input: "a\x00b\x1b[31mc\xffd\u202ee\tü\x7f\n", want: []string{`6|a\x00b\x1b[31mc\xffd\xe2\x80\xaee` + "\tü" + `\x7f`}},
		{name: "pieces of a record", o: Options{MaxRecord: 4}, input: "abcdefghij\nk\n", want: []string{"6 RECORD_PART=1|abcd", "6 RECORD_PART=2|efgh", "6 RECORD_PART=3/3|ij", "6|k"}},
		{name: "no piece cuts a character", o: Options{MaxRecord: 4}, input: "abcüüü\n", want: []string{"6 RECORD_PART=1|abc", "6 RECORD_PART=2|üü", "6 RECORD_PART=3/3|ü"}},
		{
			name: "pieces of JSON keep its end", o: Options{MaxRecord: 16}, input: `{"msg":"0123456789"}{"msg":"x"}`,
			want: []string{`6 RECORD_PART=1|{"msg":"01234567`, `6 RECORD_PART=2/2|89"}`, "6|x"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, size := range []int{1, 7, 64, 1 << 16} {
				got := records(tt.input, size, tt.o)
				var lines []string
				for _, r := range got {
					lines = append(lines, show(r))
				}
				if strings.Join(lines, "\n--\n") != strings.Join(tt.want, "\n--\n") {
					t.Errorf("in reads of %d bytes:\ngot  %q\nwant %q", size, lines, tt.want)
				}
			}
		})
	}
}

// FuzzRecords wants clean text, valid fields, no record that is too long and no
// text lost, whatever comes in and however it is cut into reads.
func FuzzRecords(f *testing.F) {
	for _, seed := range []string{
		"I0131 15:04:05.000001       7 boot.go:12] hello\n", `{"msg":"a","level":"info"}{"b":1}`,
		`time="2026-01-31T15:04:05Z" level=info msg="x y" a=b` + "\n", "panic: x\n\ngoroutine 1 [running]:\n\t/a.go:1\n", "a\x00\xff\r\n\n", "{\"msg\":\n\"x\",\nI0131 15:04:05.000001 7 a.go:1] y\n",
	} {
		f.Add(seed, uint8(1), uint8(0))
		f.Add(seed, uint8(64), uint8(16))
	}
	f.Fuzz(func(t *testing.T, input string, size, limit uint8) {
		for _, format := range []Format{Auto, Glog, JSON, Text} {
			o := Options{Format: format, MaxRecord: int(limit)}
			for _, r := range records(input, int(size)+1, o) {
				checkRecord(t, r, o)
			}
		}
		if got, want := rawText(input, int(size)+1), withoutBlanks(input); got != want {
			t.Errorf("raw records hold %q, want %q", got, want)
		}
	})
}

func checkRecord(t *testing.T, r Record, o Options) {
	t.Helper()
	// A byte may become four, \xNN, and quoted values stand in the message once more.
	if o.MaxRecord > 0 && len(r.Message) > 4*o.MaxRecord {
		t.Errorf("message of %d bytes with a limit of %d", len(r.Message), o.MaxRecord)
	}
	if r.Priority < 0 || r.Priority > 7 {
		t.Errorf("priority %d", r.Priority)
	}
	checkText(t, r.Message)
	for _, f := range r.Fields {
		if !validFieldName(f.Name) {
			t.Errorf("field name %q", f.Name)
		}
		checkText(t, f.Value)
	}
}

func checkText(t *testing.T, s string) {
	t.Helper()
	if !utf8.ValidString(s) || strings.ContainsFunc(s, isControl) {
		t.Errorf("text %q is not clean", s)
	}
}

// rawText joins what the splitter gives, without line ends.
func rawText(input string, size int) string {
	s := splitter{max: 64}
	var b strings.Builder
	take := func(flush bool) {
		for r, ok := s.next(flush); ok; r, ok = s.next(flush) {
			b.WriteString(withoutBlanks(string(r.text)))
		}
	}
	for i := 0; i < len(input); i += size {
		feed(&s, []byte(input[i:min(i+size, len(input))]))
		take(false)
	}
	take(true)
	return b.String()
}

func withoutBlanks(s string) string {
	return strings.NewReplacer("\r", "", "\n", "").Replace(s)
}

func TestParseFormat(t *testing.T) {
	for name, want := range map[string]Format{"auto": Auto, "glog": Glog, "json": JSON, "text": Text} {
		if got, err := ParseFormat(name); got != want || err != nil {
			t.Errorf("ParseFormat(%q) = %q, %v", name, got, err)
		}
	}
	if _, err := ParseFormat("xml"); err == nil {
		t.Error("ParseFormat(xml) = nil, want an error")
	}
}
