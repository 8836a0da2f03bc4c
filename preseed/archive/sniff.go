package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// headSize is how many bytes of a file decide what it is: one tar header.
const headSize = 512

// magic is what a kind of file begins with.
type magic struct {
	prefix string
	name   string
}

// foreign are compressions that are known but not read.
var foreign = []magic{
	{"\xfd7zXZ\x00", "xz"},
	{"BZh", "bzip2"},
	{"\x04\x22\x4d\x18", "lz4"},
	{"\x02\x21\x4c\x18", "lz4 (legacy)"},
	{"LZIP", "lzip"},
	{"\x1f\x9d", "compress (.Z)"},
	{"\x89LZO\x00", "lzop"},
	{"]\x00\x00", "lzma"},
	{"7z\xbc\xaf\x27\x1c", "7-Zip"},
	{"PK\x03\x04", "zip"},
}

// binaries are kinds of file that are mistaken for archives.
var binaries = []magic{
	{"\x7fELF", "an ELF program"},
	{"%PDF", "a PDF document"},
	{"hsqs", "a squashfs image"},
	{"QFI\xfb", "a qcow2 disk image"},
	{"!<arch>\n", "an ar archive (a Debian package, say)"},
	{"\xed\xab\xee\xdb", "an RPM package"},
}

// compressionOf finds the compression of what begins with head, "" when it is
// one that is not read, with its name.
func compressionOf(head []byte) (c Compression, name string) {
	switch {
	case hasPrefix(head, "\x1f\x8b\x08"):
		return Gzip, "gzip"
	case hasPrefix(head, "\x28\xb5\x2f\xfd"), isSkippableFrame(head):
		return Zstd, "zstd"
	}
	for _, m := range foreign {
		// A tar whose first member has such a name is still a tar.
		if hasPrefix(head, m.prefix) && !isTar(head) {
			return "", m.name
		}
	}
	return None, ""
}

// isSkippableFrame finds what pzstd and zstd:chunked begin with: RFC 8878, 3.1.2.
func isSkippableFrame(head []byte) bool {
	return len(head) >= 4 && head[0]&0xf0 == 0x50 && string(head[1:4]) == "\x2a\x4d\x18"
}

// isTar says whether head is a whole tar header with the right checksum.
func isTar(head []byte) bool {
	if len(head) < headSize || isZero(head) {
		return false
	}
	_, err := tar.NewReader(bytes.NewReader(head[:headSize])).Next()
	return !errors.Is(err, tar.ErrHeader)
}

// checkHead says what a file that begins with head is when it is neither a tar
// nor compressed in a way that is read; whole says that head is all of it.
func checkHead(head []byte, whole bool) error {
	if len(head) == 0 {
		return &Error{
			Code: CodeEmpty, Found: "the file is empty (0 bytes)", Expected: "an image archive",
			Advice: "it was made but never filled: fetch or write it again",
		}
	}
	if whole && len(head) < 4 {
		return &Error{Code: CodeNotAnImage, Found: fmt.Sprintf("only %d bytes, too short for any archive", len(head)), Expected: "an image archive", Advice: "copy it again, whole"}
	}
	c, name := compressionOf(head)
	if c == "" {
		return unsupported(name)
	}
	if c != None || isTar(head) {
		return nil
	}
	what, advice := describe(head)
	if advice == "" {
		advice = "write the archive again with `docker save` or `ctr images export`, and copy it whole"
	}
	if what == "" {
		what = fmt.Sprintf("unknown data that begins with bytes % x", head[:min(8, len(head))])
		if whole {
			what = fmt.Sprintf("only %d bytes, too short for a tar archive", len(head))
		}
	}
	return &Error{Code: CodeNotAnImage, Found: what, Expected: "an image archive", Advice: advice}
}

func unsupported(name string) *Error {
	return &Error{
		Code: CodeUnsupportedCompression, Found: name + " compression", Expected: "none, gzip or zstd",
		Advice: "decompress it, or compress it with zstd or gzip",
	}
}

// describe says in words what head is the begin of, with the next step, or ""
// when it cannot tell.
func describe(head []byte) (what, advice string) {
	if isZero(head) {
		return "nothing but NUL bytes at its begin: an empty tar archive, or a file that was never filled",
			"write it again, and check the disk that it came from"
	}
	for _, m := range binaries {
		if hasPrefix(head, m.prefix) {
			return m.name, ""
		}
	}
	text := strings.TrimSpace(strings.TrimPrefix(string(head), "\ufeff"))
	lower := strings.ToLower(text)
	switch {
	case !isText(head):
		return "", ""
	case strings.HasPrefix(lower, "<!doctype html"), strings.HasPrefix(lower, "<html"), strings.HasPrefix(lower, "<head"):
		return "an HTML page", "a server answered the download with a page: fetch it again, with curl --fail"
	case strings.HasPrefix(lower, "<?xml"):
		return "an XML document", "a server answered the download with an error: fetch it again, with curl --fail"
	case strings.HasPrefix(lower, "version https://git-lfs.github.com/"):
		return "a Git LFS pointer instead of the file", "run git lfs pull"
	case strings.HasPrefix(text, "{"), strings.HasPrefix(text, "["):
		return "JSON text that begins " + firstLine(text), ""
	case text == "":
		return "white space", ""
	}
	return "plain text that begins " + firstLine(text), ""
}

// firstLine is the begin of a text, fit to be shown.
func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	if r := []rune(line); len(r) > 40 {
		line = string(r[:40]) + "…"
	}
	return quote(strings.TrimSpace(line))
}

// isText says whether head is text in UTF-8, whose last character may be cut.
func isText(head []byte) bool {
	for len(head) > 0 {
		r, n := utf8.DecodeRune(head)
		if r == utf8.RuneError && n == 1 {
			return len(head) < utf8.UTFMax && !utf8.FullRune(head)
		}
		if !unicode.IsPrint(r) && !unicode.IsSpace(r) && r != '\ufeff' && r != '\x1b' {
			return false
		}
		head = head[n:]
	}
	return true
}

func isZero(p []byte) bool { return len(bytes.Trim(p, "\x00")) == 0 }

func hasPrefix(p []byte, prefix string) bool { return bytes.HasPrefix(p, []byte(prefix)) }
