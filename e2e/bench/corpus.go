package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

const mib = 1 << 20

// parameters say what the corpus is; equal parameters on an equal /usr give the same bytes.
type parameters struct {
	Version int     // of the generator: to be raised when it makes something else
	Source  string  // directory whose files fill the layers
	Single  []int64 // compressed sizes of the single image's layers, in bytes
	Base    []int64 // compressed sizes of the layers that the many images share, in bytes
	Top     int64   // compressed size of each one's own layer, in bytes
	Images  int     // how many share the base
}

// sizes returns the parameters of the corpus: one image of 177 MiB with 5 layers, and 20 images of 113 MiB that share 4
// layers; or, quick, a tenth of that.
func sizes(quick bool) parameters {
	unit := int64(mib)
	if quick {
		unit /= 10
	}
	p := parameters{Version: 2, Source: "/usr", Images: 20, Top: unit * 3 / 2}
	for _, share := range []int64{30, 25, 20, 15, 10} { // per cent: real layers differ in size
		p.Single = append(p.Single, unit*177*share/100)
	}
	for _, share := range []int64{40, 30, 20, 10} {
		p.Base = append(p.Base, unit*111*share/100)
	}
	return p
}

// key names the parameters.
func (p parameters) key() string {
	data, err := json.Marshal(p)
	if err != nil {
		panic(err) // numbers and strings always can be
	}
	return fmt.Sprintf("%x", sha256.Sum256(data))[:12]
}

// corpus is a directory of preseed directories, one for each form: <form>/k8s.io/<bundle>.
type corpus struct{ dir string }

const namespace = "k8s.io"

// The forms.
const (
	formSingle       = "single"        // one OCI archive
	formLayout       = "layout"        // the same as an OCI layout directory
	formSingleDocker = "single-docker" // the same as a docker archive
	formMany         = "many"          // 20 OCI archives with 4 layers in common
	formChanged      = "changed"       // the same, one of them with another top layer
	formCurrent      = "current"       // one of the two, see point
	formMerged       = "merged"        // the 20 images in one OCI archive
	formMergedDocker = "merged-docker" // the 20 images in one docker archive
	formZstd         = "zst"           // the merged archive, compressed by zstd
	formGzip         = "gz"            // the merged archive, compressed by gzip
)

// preseed returns a form's preseed directory.
func (c corpus) preseed(form string) string { return filepath.Join(c.dir, form) }

// bundles returns the paths of a form's bundles, sorted.
func (c corpus) bundles(form string) ([]string, error) {
	return filepath.Glob(filepath.Join(c.dir, form, namespace, "*"))
}

// openCorpus returns the corpus below dir and makes it when it is not there.
func openCorpus(ctx context.Context, dir string, p parameters, log io.Writer) (corpus, error) {
	c := corpus{dir: filepath.Join(dir, "corpus-"+p.key())}
	if _, err := os.Stat(c.dir); err == nil {
		return c, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return c, err
	}
	temp, err := os.MkdirTemp(dir, "corpus-new-")
	if err != nil {
		return c, err
	}
	defer os.RemoveAll(temp)
	started := time.Now()
	fmt.Fprintf(log, "making the corpus from %s in %s\n", p.Source, c.dir)
	if err := generate(ctx, temp, p); err != nil {
		return c, fmt.Errorf("make corpus: %w", err)
	}
	fmt.Fprintf(log, "made it in %.0f s\n", time.Since(started).Seconds())
	return c, os.Rename(temp, c.dir)
}

// generate fills the corpus directory dir.
func generate(ctx context.Context, dir string, p parameters) error {
	pool := filepath.Join(dir, "pool")
	if err := os.Mkdir(pool, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(pool)
	m, err := newMaker(p.Source, pool)
	if err != nil {
		return err
	}
	single, many, changed, err := m.images(ctx, p)
	if err != nil {
		return err
	}
	c := corpus{dir: dir}
	if err := c.writeSingle(m, single); err != nil {
		return err
	}
	if err := c.writeMany(m, many, changed); err != nil {
		return err
	}
	return c.compressMerged(ctx)
}

func (c corpus) writeSingle(m *maker, i image) error {
	if err := c.create(formSingle, "single.tar", func(w io.Writer) error { return m.writeOCI(w, i) }); err != nil {
		return err
	}
	if err := c.create(formSingleDocker, "single.tar", func(w io.Writer) error { return m.writeDocker(w, i) }); err != nil {
		return err
	}
	return m.writeLayout(filepath.Join(c.preseed(formLayout), namespace, "single"), i)
}

// writeMany writes the images one by one and merged. The changed form shares all files but one with the first.
func (c corpus) writeMany(m *maker, images []image, changed image) error {
	for n, i := range images {
		name := fmt.Sprintf("image-%02d.tar", n)
		if err := c.create(formMany, name, func(w io.Writer) error { return m.writeOCI(w, i) }); err != nil {
			return err
		}
		if i.name == changed.name {
			if err := c.create(formChanged, name, func(w io.Writer) error { return m.writeOCI(w, changed) }); err != nil {
				return err
			}
			continue
		}
		if err := c.link(formMany, formChanged, name); err != nil {
			return err
		}
	}
	if err := c.create(formMerged, "merged.tar", func(w io.Writer) error { return m.writeOCI(w, images...) }); err != nil {
		return err
	}
	return c.create(formMergedDocker, "merged.tar", func(w io.Writer) error { return m.writeDocker(w, images...) })
}

// compressMerged compresses the merged archive with the tools of those names, as people do. A tool that is not there
// leaves its form out.
func (c corpus) compressMerged(ctx context.Context) error {
	source := filepath.Join(c.preseed(formMerged), namespace, "merged.tar")
	for _, tool := range []struct {
		form, name string
		command    []string
	}{
		{formZstd, "merged.tar.zst", []string{"zstd", "-q", "-3", "-c", source}},
		{formGzip, "merged.tar.gz", []string{"gzip", "-n", "-6", "-c", source}},
	} {
		if _, err := exec.LookPath(tool.command[0]); err != nil {
			continue
		}
		if err := c.create(tool.form, tool.name, func(w io.Writer) error {
			cmd := exec.CommandContext(ctx, tool.command[0], tool.command[1:]...)
			cmd.Stdout, cmd.Stderr = w, os.Stderr
			return cmd.Run()
		}); err != nil {
			return err
		}
	}
	return nil
}

// create writes one bundle.
func (c corpus) create(form, name string, write func(io.Writer) error) error {
	dir := filepath.Join(c.preseed(form), namespace)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	if err := write(f); err != nil {
		f.Close()
		return fmt.Errorf("write %q: %w", f.Name(), err)
	}
	return f.Close()
}

func (c corpus) link(from, to, name string) error {
	dir := filepath.Join(c.preseed(to), namespace)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.Link(filepath.Join(c.preseed(from), namespace, name), filepath.Join(dir, name))
}

// point has formCurrent be the bundles of another form.
func (c corpus) point(form string) error {
	current := c.preseed(formCurrent)
	if err := os.Remove(current); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Symlink(form, current)
}

// warm reads the bundles of the forms so that they are in the page cache.
func (c corpus) warm(forms ...string) error {
	for _, form := range forms {
		err := filepath.WalkDir(c.preseed(form), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() {
				return err
			}
			f, err := os.Open(path)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = io.Copy(io.Discard, f)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
