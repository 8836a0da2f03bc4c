package preseed

import (
	"strings"

	"github.com/containerd/containerd/v2/pkg/reference"
	distribution "github.com/distribution/reference"
)

// dockerName normalises a RepoTag of a docker archive as containerd's importer does: "app:1"
// becomes "docker.io/library/app:1", a missing tag "latest".
func dockerName(raw string) (string, error) {
	named, err := distribution.ParseDockerRef(raw)
	if err != nil {
		return "", badName(raw, err)
	}
	return named.String(), nil
}

// ociName returns the name that an OCI index gives, untouched, when it is a valid reference. The
// warning is set when the name is valid but is not what the kubelet looks for.
func ociName(raw string) (name, warning string, err error) {
	normal, err := distribution.ParseDockerRef(raw)
	if err != nil {
		return "", "", badName(raw, err)
	}
	if _, err := reference.Parse(raw); err != nil || normal.String() != raw {
		return raw, "stored as given; the kubelet and docker look for " + quote(normal.String()), nil
	}
	return raw, "", nil
}

func badName(raw string, err error) *Error {
	advice := "name the image HOST/REPOSITORY:TAG when the bundle is made"
	if strings.ToLower(raw) != raw {
		advice = "repository names are lower case; " + advice
	}
	return &Error{Code: CodeBadName, Found: "invalid image reference " + quote(raw), Advice: advice, Err: err}
}

// canonicalReference is the form in which references are compared: what containerd's CRI plugin
// would look up.
func canonicalReference(name string) string {
	if named, err := distribution.ParseDockerRef(name); err == nil {
		return named.String()
	}
	return name
}
