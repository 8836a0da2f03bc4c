package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// ConfigError says what is wrong with containerd's configuration.
type ConfigError struct {
	Path string
	// Line is where, counted from 1; 0 if it is not in one place.
	Line int
	Err  error
}

func (e *ConfigError) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("read containerd configuration %q: line %d: %v", e.Path, e.Line, e.Err)
	}
	return fmt.Sprintf("read containerd configuration %q: %v", e.Path, e.Err)
}

// Unwrap returns the cause.
func (e *ConfigError) Unwrap() error { return e.Err }

// Hint says what to do about it.
func (e *ConfigError) Hint() string {
	if errors.Is(e.Err, fs.ErrNotExist) {
		return "name a file that is there, or none: seedbed takes the image's configuration, or renders its own"
	}
	return "mend the file, or move it away: seedbed renders its own where there is none"
}

// configFile is what this package needs to know of a configuration, whoever wrote it.
type configFile struct {
	Version  int            `toml:"version"`
	Root     string         `toml:"root"`
	State    string         `toml:"state"`
	Imports  []string       `toml:"imports"`
	Disabled []string       `toml:"disabled_plugins"`
	GRPC     serverConfig   `toml:"grpc"` // up to version 3
	Plugins  map[string]any `toml:"plugins"`
}

// ReadConfig returns the text of the containerd configuration at path, and a
// *[ConfigError] if it is no configuration or cannot be read.
func ReadConfig(path string) ([]byte, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, &ConfigError{Path: path, Err: errors.New("it is no regular file")}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, &ConfigError{Path: path, Err: err}
	}
	_, err = parseConfig(path, data)
	return data, err
}

// loadConfig reads what this package needs to know of o's configuration, with the files that it
// imports.
func loadConfig(o Options) (*configFile, error) {
	data := o.Config
	if data == nil {
		var err error
		if data, err = ReadConfig(o.ConfigFile); err != nil {
			return nil, err
		}
	}
	c, err := parseConfig(o.ConfigFile, data)
	if err != nil {
		return nil, err
	}
	if err := c.include(o.ConfigFile); err != nil {
		return nil, err
	}
	if c.Root == "" {
		c.Root = "/var/lib/containerd"
	}
	if c.State == "" {
		c.State = "/run/containerd"
	}
	if c.Root == c.State {
		return nil, &ConfigError{Path: o.ConfigFile, Err: fmt.Errorf("root and state are both %q, they must differ", c.Root)}
	}
	return c, nil
}

// include lays over c what its imports say, which are files and patterns relative to the
// directory of its own (containerd-config.toml(5), "imports"). Imports of imports are left to containerd.
func (c *configFile) include(path string) error {
	for _, name := range c.Imports {
		if !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(path), name)
		}
		files := []string{name}
		if strings.Contains(name, "*") {
			files, _ = filepath.Glob(name) // a pattern that is none matches nothing
		}
		for _, file := range files {
			data, err := ReadConfig(file)
			if err != nil {
				return err
			}
			over, _ := parseConfig(file, data) // ReadConfig has parsed it
			c.Root, c.State = cmp.Or(over.Root, c.Root), cmp.Or(over.State, c.State)
			c.Disabled = append(c.Disabled, over.Disabled...)
			merge(c.Plugins, over.Plugins)
		}
	}
	return nil
}

// merge lays one table over another.
func merge(table, over map[string]any) {
	for key, value := range over {
		to, ok := table[key].(map[string]any)
		from, too := value.(map[string]any)
		if ok && too {
			merge(to, from)
			continue
		}
		table[key] = value
	}
}

// grpcServer is where version 4 has the address of the gRPC socket.
const grpcServer = "io.containerd.server.v1.grpc"

func parseConfig(path string, data []byte) (*configFile, error) {
	var c configFile
	if err := toml.Unmarshal(data, &c); err != nil {
		return nil, &ConfigError{Path: path, Line: tomlLine(err), Err: err}
	}
	if c.Plugins == nil {
		c.Plugins = map[string]any{}
	}
	if c.GRPC.Address != "" && c.Plugins[grpcServer] == nil {
		c.Plugins[grpcServer] = map[string]any{"address": c.GRPC.Address}
	}
	return &c, nil
}

func tomlLine(err error) int {
	if at, ok := err.(*toml.DecodeError); ok {
		line, _ := at.Position()
		return line
	}
	return 0
}

// address returns the path of the gRPC socket.
func (c *configFile) address() string {
	server, _ := c.Plugins[grpcServer].(map[string]any)
	address, _ := server["address"].(string)
	return cmp.Or(address, "/run/containerd/containerd.sock")
}

// runtimeShim is the shim that a runtime of the configuration needs.
type runtimeShim struct {
	runtime string
	program string // a path, or a name to be looked for in the PATH
}

// shims returns the shims of the configured runtimes in the order of their names. A type
// "io.containerd.runsc.v1" means the program containerd-shim-runsc-v1
// (https://github.com/containerd/containerd/blob/main/core/runtime/v2/README.md).
func (c *configFile) shims() []runtimeShim {
	runtimes := c.runtimes()
	var shims []runtimeShim
	for _, name := range slices.Sorted(maps.Keys(runtimes)) {
		class, _ := runtimes[name].(map[string]any)
		program, _ := class["runtime_path"].(string)
		if program == "" {
			kind, _ := class["runtime_type"].(string)
			parts := strings.Split(kind, ".")
			if len(parts) < 2 {
				continue
			}
			program = "containerd-shim-" + parts[len(parts)-2] + "-" + parts[len(parts)-1]
		}
		shims = append(shims, runtimeShim{name, program})
	}
	return shims
}

// hasCRI reports whether a section configures CRI and nothing disables it.
func (c *configFile) hasCRI() bool {
	configured := false
	for _, plugin := range []string{"io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri", "cri"} {
		if slices.Contains(c.Disabled, plugin) {
			return false
		}
		_, ok := c.Plugins[plugin]
		configured = configured || ok
	}
	return configured
}

// runtimes returns CRI's table of runtimes, in version 3 and later or in version 2.
func (c *configFile) runtimes() map[string]any {
	for _, plugin := range []string{"io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri"} {
		table, _ := c.Plugins[plugin].(map[string]any)
		table, _ = table["containerd"].(map[string]any)
		if runtimes, ok := table["runtimes"].(map[string]any); ok {
			return runtimes
		}
	}
	return nil
}
