package main

import (
	"maps"
	"slices"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"seedbed/e2e/bundle"
)

// bad makes damaged bundles of a good image, by the names of their damage.
var bad = map[string]func(bundle.Image) []byte{
	"empty":     func(bundle.Image) []byte { return nil },
	"text":      func(bundle.Image) []byte { return []byte("404: Not Found\n") },
	"html":      func(bundle.Image) []byte { return []byte("<!DOCTYPE html>\n<html><body>Not Found</body></html>\n") },
	"nul":       func(bundle.Image) []byte { return make([]byte, 1024) },
	"xz":        func(bundle.Image) []byte { return []byte("\xfd7zXZ\x00\x00\x04") },
	"truncated": func(i bundle.Image) []byte { return bundle.OCI(i).Bytes()[:2500] },
	"flipped-byte": func(i bundle.Image) []byte {
		return bundle.OCI(i).FlipByte(layer(i)).Bytes()
	},
	"missing-layer": func(i bundle.Image) []byte { return bundle.OCI(i).Drop(layer(i)).Bytes() },
	"unnamed": func(i bundle.Image) []byte {
		i.Name = ""
		return bundle.OCI(i).Bytes()
	},
	"tag-only": func(i bundle.Image) []byte {
		i.Name, i.RefName = "", "latest"
		return bundle.OCI(i).Bytes()
	},
	"repotags-null": func(i bundle.Image) []byte {
		i.Name = ""
		return bundle.Docker(i).Bytes()
	},
	"wrong-platform": func(i bundle.Image) []byte {
		i.Platform = ocispec.Platform{OS: "linux", Architecture: "s390x"}
		return bundle.OCI(i).Bytes()
	},
	"bad-name": func(i bundle.Image) []byte {
		i.Name = "UPPER/Case:1"
		return bundle.OCI(i).Bytes()
	},
	"top-directory": func(i bundle.Image) []byte { return bundle.OCI(i).Prefix("myimage/").Bytes() },
	"rootfs": func(bundle.Image) []byte {
		return bundle.Tar{}.Add("bin/sh", nil).Add("etc/passwd", nil).Add("usr/bin/env", nil).Bytes()
	},
	"no-images": func(i bundle.Image) []byte {
		return bundle.OCI(i).Replace("index.json", []byte(`{"schemaVersion":2,"manifests":[]}`)).Bytes()
	},
	"layout-version": func(i bundle.Image) []byte {
		return bundle.OCI(i).Replace("oci-layout", []byte(`{"imageLayoutVersion":"2.0.0"}`)).Bytes()
	},
}

func badNames() []string { return slices.Sorted(maps.Keys(bad)) }

func layer(i bundle.Image) string { return bundle.Member(i.Build().Layers[0].Digest) }
