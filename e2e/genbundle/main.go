// Genbundle writes sample image archives into a preseed directory, for tests
// by hand and for demonstrations:
//
//	go run ./e2e/genbundle DIR
//
// writes DIR/k8s.io/hello-oci.tar, hello-docker.tar, hello-gzip.tar.gz and
// hello-zstd.tar.zst, each with an image that runs. With -bad NAME,… (or -bad
// all) it writes damaged bundles beside them.
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"seedbed/e2e/bundle"
)

type options struct {
	namespace string
	registry  string
	bad       string
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("genbundle: ")
	if err := run(os.Args[1:], os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(args []string, out io.Writer) error {
	var o options
	flags := flag.NewFlagSet("genbundle", flag.ContinueOnError)
	flags.StringVar(&o.namespace, "n", "k8s.io", "containerd `namespace`, the folder in DIR")
	flags.StringVar(&o.registry, "registry", "example.com/seedbed", "`prefix` of the images' names")
	flags.StringVar(&o.bad, "bad", "", "comma-separated `names` of damaged bundles to write as well, or all: "+strings.Join(badNames(), ", "))
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return fmt.Errorf("want one directory, got %d", flags.NArg())
	}
	files, err := o.files()
	if err != nil {
		return err
	}
	return write(filepath.Join(flags.Arg(0), o.namespace), files, out)
}

// files are the contents of all bundles by their file names.
func (o options) files() (map[string][]byte, error) {
	files := map[string][]byte{}
	for name, form := range map[string]func(...bundle.Image) bundle.Tar{
		"hello-oci.tar": bundle.OCI, "hello-docker.tar": bundle.Docker, "hello-gzip.tar.gz": bundle.OCI, "hello-zstd.tar.zst": bundle.OCI,
	} {
		stem, suffix, _ := strings.Cut(name, ".")
		image, err := bundle.HelloImage(o.registry + "/" + stem + ":v1")
		if err != nil {
			return nil, err
		}
		files[name] = bundle.Compress(form(image).Bytes(), compressions[suffix])
	}
	for _, name := range o.badNames() {
		damage, ok := bad[name]
		if !ok {
			return nil, fmt.Errorf("no bad bundle %q, there are: %s", name, strings.Join(badNames(), ", "))
		}
		image := bundle.Good(o.registry + "/bad-" + name + ":v1")
		files["bad-"+name+".tar"] = damage(image)
	}
	return files, nil
}

var compressions = map[string]bundle.Compression{"tar": bundle.None, "tar.gz": bundle.Gzip, "tar.zst": bundle.Zstd}

func (o options) badNames() []string {
	switch o.bad {
	case "":
		return nil
	case "all":
		return badNames()
	}
	return strings.Split(o.bad, ",")
}

func write(dir string, files map[string][]byte, out io.Writer) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, files[name], 0o644); err != nil {
			return err
		}
		fmt.Fprintln(out, path)
	}
	return nil
}
