package storage

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

const schemaFile = "../docs/reference/storage-v1.schema.json"

func schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	s, err := jsonschema.NewCompiler().Compile(schemaFile)
	must(t, err)
	return s
}

// fits validates a document against the schema.
func fits(t *testing.T, s *jsonschema.Schema, text string) error {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	must(t, err)
	return s.Validate(document)
}

// TestWhatIsWrittenFitsTheSchema validates what the program itself writes.
func TestWhatIsWrittenFitsTheSchema(t *testing.T) {
	s := schema(t)
	for _, name := range BuiltinNames() {
		l, root := builtin(t, name), t.TempDir()
		text, err := json.Marshal(l)
		must(t, err)
		if err := fits(t, s, string(text)); err != nil {
			t.Errorf("layout %s: %v", name, err)
		}
		file := filepath.Join(t.TempDir(), "my.json")
		must(t, os.WriteFile(file, text, 0o644))
		own, err := ReadLayout(file)
		must(t, err)
		for _, l := range []*Layout{l, own} {
			place(t, l, root)
			text, err := os.ReadFile(DefaultManifest(root))
			must(t, err)
			if err := fits(t, s, string(text)); err != nil {
				t.Errorf("manifest of %s: %v", name, err)
			}
		}
	}
}

// TestTheSchemaRefusesWhatTheProgramDoes changes a layout in one place at a time: neither takes it.
func TestTheSchemaRefusesWhatTheProgramDoes(t *testing.T) {
	s := schema(t)
	const good = `{"schema":"seedbed.storage/v1","nodes":[` +
		`{"id":"d.e","path":"/d/e","kind":"dir","mode":"0755","uid":0,"gid":0,"user":"etcd","mount":"d.e","creator":"seedbed"},` +
		`{"id":"l","path":"/l","kind":"symlink","mode":"0777","target":"/x","when":"image"}],` +
		`"mounts":[{"id":"d.e","path":"/d/e","policy":"make","fstype":"tmpfs","size":"64m","options":["ro"]}]}`
	file := filepath.Join(t.TempDir(), "layout.json")
	reads := func(text string) error {
		must(t, os.WriteFile(file, []byte(text), 0o644))
		_, err := ReadLayout(file)
		return err
	}
	if err := errors.Join(fits(t, s, good), reads(good)); err != nil {
		t.Fatalf("the layout that is changed below: %v", err)
	}
	for name, change := range map[string][2]string{
		"another schema":          {`/v1`, `/v2`},
		"an unknown field":        {`{"schema"`, `{"schemas":1,"schema"`},
		"a node's unknown field":  {`"uid":0`, `"uids":0`},
		"a mount's unknown field": {`"size"`, `"sizes"`},
		"an id in capitals":       {`"id":"l"`, `"id":"L"`},
		"an id with an end":       {`"id":"l"`, `"id":"l."`},
		"no id":                   {`"id":"l",`, ``},
		"a relative path":         {`"/l"`, `"l"`},
		"a path with dots":        {`"/l"`, `"/x/../l"`},
		"a path with two slashes": {`"/l"`, `"//l"`},
		"a path with an end":      {`"/l"`, `"/l/"`},
		"a path with a NUL":       {`"/l"`, `"/\u0000"`},
		"no path":                 {`"path":"/l",`, ``},
		"an unknown kind":         {`"dir"`, `"device"`},
		"a mode as a number":      {`"0755"`, `755`},
		"a mode that is too long": {`"0755"`, `"000755"`},
		"a mode beyond the bits":  {`"0755"`, `"10000"`},
		"a mode that is short":    {`"0755"`, `"75"`},
		"a mode of words":         {`"0755"`, `"rwx"`},
		"no mode":                 {`"0755"`, `"0000"`},
		"a negative owner":        {`"gid":0`, `"gid":-1`},
		"an owner that is none":   {`"gid":0`, `"gid":4294967295`},
		"an owner in words":       {`"uid":0`, `"uid":"root"`},
		"a user with a colon":     {`"etcd"`, `"et:cd"`},
		"a user that is a number": {`"etcd"`, `"12"`},
		"a dir with a target":     {`"uid":0`, `"target":"/x"`},
		"a symlink without one":   {`"target":"/x",`, ``},
		"another creator":         {`"creator":"seedbed"`, `"creator":"me"`},
		"another condition":       {`"when":"image"`, `"when":"never"`},
		"no nodes":                {good[strings.Index(good, `[{`):strings.Index(good, `,"mounts"`)], `[]`},
		"another policy":          {`"make"`, `"maybe"`},
		"another file system":     {`"tmpfs"`, `"xfs"`},
		"a size in words":         {`"64m"`, `"big"`},
		"no size":                 {`"64m"`, `"0"`},
		"two options in one":      {`"ro"`, `"ro,noexec"`},
		"an encrypted tmpfs":      {`"size":"64m"`, `"encryption":"dm-crypt"`},
		"another encryption":      {`"size":"64m"`, `"encryption":"rot13"`},
	} {
		text := strings.Replace(good, change[0], change[1], 1)
		if text == good {
			t.Errorf("%s: nothing is changed", name)
		}
		if fits(t, s, text) == nil {
			t.Errorf("%s: the schema takes it: %s", name, text)
		}
		if reads(text) == nil {
			t.Errorf("%s: the program takes it: %s", name, text)
		}
	}
}

// TestTheSchemaHasEveryField: what the schema lists is what the documents have.
func TestTheSchemaHasEveryField(t *testing.T) {
	data, err := os.ReadFile(schemaFile)
	must(t, err)
	var document struct {
		Defs map[string]struct {
			Properties map[string]any `json:"properties"`
		} `json:"$defs"`
	}
	must(t, json.Unmarshal(data, &document))
	for name, kind := range map[string]reflect.Type{
		"layout": reflect.TypeFor[Layout](), "manifest": reflect.TypeFor[Manifest](), "node": reflect.TypeFor[Node](), "mount": reflect.TypeFor[Mount](),
	} {
		var want, got []string
		for _, f := range reflect.VisibleFields(kind) {
			if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag != "" {
				want = append(want, tag)
			}
		}
		for field := range document.Defs[name].Properties {
			got = append(got, field)
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: the schema has %v: expected %v", name, got, want)
		}
	}
}

// TestAManifestHasAllItsFields: a manifest without one of them is neither a manifest nor a layout to the schema.
func TestAManifestHasAllItsFields(t *testing.T) {
	s, root := schema(t), t.TempDir()
	place(t, builtin(t, "node"), root)
	data, err := os.ReadFile(DefaultManifest(root))
	must(t, err)
	var whole map[string]any
	must(t, json.Unmarshal(data, &whole))
	for field, value := range whole {
		delete(whole, field)
		if s.Validate(whole) == nil {
			t.Errorf("without %s: the schema takes it", field)
		}
		whole[field] = value
	}
	whole["nodes"].([]any)[3].(map[string]any)["state"] = "gone"
	if s.Validate(whole) == nil {
		t.Error("a node of an unknown state: the schema takes it")
	}
}
