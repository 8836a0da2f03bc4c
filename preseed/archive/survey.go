package archive

import (
	"fmt"
	"path"
	"slices"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// maxTops bounds how many names at the top of an archive are remembered.
const maxTops = 32

// survey is what is remembered of all members, to say what an archive is that
// is no image.
type survey struct {
	count   int
	first   string   // raw name of the first member
	tops    []string // distinct names at the top, at most maxTops
	nested  bool     // a file that belongs at the top of an image lies one below
	helm    bool     // there is a */Chart.yaml
	ignored []string // raw names that must not count, at most maxIgnored
	dropped int      // how many such names there are
}

func (s *survey) add(raw string) {
	if s.count == 0 {
		s.first = strings.Clone(raw)
	}
	s.count++
	name := cleanName(raw)
	if name == "" {
		if path.Clean(raw) != "." {
			s.ignore(raw)
		}
		return
	}
	top, rest, _ := strings.Cut(name, "/")
	if len(s.tops) < maxTops && !slices.Contains(s.tops, top) {
		s.tops = append(s.tops, strings.Clone(top))
	}
	switch rest {
	case ocispec.ImageIndexFile, ocispec.ImageLayoutFile, manifestFile:
		s.nested = true
	case "Chart.yaml":
		s.helm = true
	}
}

func (s *survey) ignore(raw string) {
	s.dropped++
	if len(s.ignored) < maxIgnored {
		s.ignored = append(s.ignored, strings.Clone(raw[:min(len(raw), maxName)]))
	}
}

func (s *survey) has(top string) bool { return slices.Contains(s.tops, top) }

// verdict says why there is no image in what has neither a whole OCI layout nor
// a manifest.json.
func (s *survey) verdict() *Error {
	e := &Error{Code: CodeNotAnImage, Expected: "oci-layout with index.json, or manifest.json"}
	switch {
	case s.count == 0:
		e.Found = "no member at all"
	case s.has(ocispec.ImageLayoutFile):
		e.Member, e.Found, e.Expected = ocispec.ImageIndexFile, "not there, although there is an oci-layout", "the list of the images"
	case s.has(ocispec.ImageIndexFile):
		e.Member, e.Found, e.Expected = ocispec.ImageLayoutFile, "not there, although there is an index.json", "the mark of an OCI image layout"
	case s.has("repositories"):
		e.Found = "a docker archive of before Docker 1.10, with repositories and no manifest.json"
		e.Advice = "load it into a current Docker and save it again"
	case len(s.tops) == 1 && s.nested:
		e.Found = fmt.Sprintf("everything is under one directory, %s", quote(s.tops[0]))
		e.Advice = "pack the content of the directory: tar -cf x.tar -C " + quote(s.tops[0]) + " ."
	case s.helm:
		e.Found = "a Helm chart, not an image"
	case s.rootFS():
		e.Found = "it looks like a root filesystem, not an image"
		e.Advice = "use docker save, not docker export"
	default:
		e.Found = fmt.Sprintf("none of them among %s, the first is %s", members(s.count), quote(s.first))
	}
	return e
}

// rootFS says whether the top looks like the root of a Unix file system.
func (s *survey) rootFS() bool {
	n := 0
	for _, top := range s.tops {
		switch top {
		case "bin", "boot", "dev", "etc", "home", "lib", "lib64", "mnt", "opt", "proc", "root", "run", "sbin", "srv", "sys", "tmp", "usr", "var":
			n++
		}
	}
	return n >= 2 || s.has("etc")
}

func members(n int) string {
	if n == 1 {
		return "1 member"
	}
	return fmt.Sprintf("%d members", n)
}
