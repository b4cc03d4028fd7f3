package install

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"diapause.dev/cri"
	"diapause.dev/runsc/annotation"
)

// table is a table of a TOML file.
type table = map[string]any

// The plugins of containerd that configure the runtime handlers, by the version of the configuration.
const (
	pluginV2 = "io.containerd.grpc.v1.cri"
	pluginV3 = "io.containerd.cri.v1.runtime"
)

// annotations are the pods' annotations that containerd passes on to the shim and runsc. Those of gVisor are the ones
// that a pod may set; the shim looks at them again.
var annotations = append(slices.Clone(annotation.Patterns), "podsnapshot.gke.io/*", "diapause.dev/*")

// optionsType is the type of the options of gVisor's shim. Our shim takes the same options.
const optionsType = "io.containerd.runsc.v1.options"

// note is at the head of every file that is written.
const note = "# Written by diapause-agent install, which puts back what is changed here.\n# diapause-agent " +
	"uninstall removes this file.\n"

// handler is what containerd must know about each of our runtime handlers.
func (o Options) handler() cri.Handler {
	return cri.Handler{
		Type: cri.RuntimeType, Path: o.shim(),
		PodAnnotations: annotations, ContainerAnnotations: annotations,
		Options: table{"TypeUrl": optionsType, "ConfigPath": o.runscConfig()},
	}
}

// runtimes is the part of containerd's configuration that declares our runtime handlers.
func (o Options) runtimes() table {
	h, all := o.handler(), table{}
	for _, name := range o.Handlers {
		all[name] = table{
			"runtime_type": h.Type, "runtime_path": h.Path,
			"pod_annotations": h.PodAnnotations, "container_annotations": h.ContainerAnnotations,
			"options": h.Options,
		}
	}
	return table{"containerd": table{"runtimes": all}}
}

// runsc returns the content of runsc's configuration, in the format of gVisor's shim.
func (o Options) runsc() ([]byte, error) {
	return encode(table{"binary_name": filepath.Join(o.Dir, "bin", runscProgram), "runsc_config": o.Flags})
}

// dropIn returns the content of the drop-in for a containerd with this main configuration. It has that configuration's
// version, because some versions of containerd bring all files to a newer one only once they have been merged. It has
// our handlers alone: containerd merges it with the section of the main file.
func (o Options) dropIn(main mainConfig) ([]byte, error) {
	if main.Version >= 3 {
		return encode(table{"version": 3, "plugins": table{pluginV3: o.runtimes()}})
	}
	return encode(table{"version": 2, "plugins": table{pluginV2: o.runtimes()}})
}

// mainConfig is the part of containerd's configuration file that matters here.
type mainConfig struct {
	Version int      `toml:"version"`
	Imports []string `toml:"imports"`
}

// imports returns the absolute patterns of the files that the file at path imports.
func (c mainConfig) imports(path string) []string {
	var out []string
	for _, p := range c.Imports {
		if !filepath.IsAbs(p) {
			p = filepath.Join(filepath.Dir(path), p)
		}
		out = append(out, filepath.Clean(p))
	}
	return out
}

func readConfig(path string) (mainConfig, error) {
	var c mainConfig
	if _, err := toml.DecodeFile(path, &c); err != nil {
		return c, fmt.Errorf("install: configuration of containerd %s: %w", path, err)
	}
	return c, nil
}

// errNoImport is the kind of error for a main configuration that does not import the drop-in.
var errNoImport = errors.New("does not import the drop-in")

// readMain reads containerd's main configuration. If the drop-in would have no effect, the error says what to write
// there.
func (o Options) readMain() (mainConfig, error) {
	pattern := filepath.Join(filepath.Dir(o.DropIn), "*.toml")
	c, err := readConfig(o.host(o.Config))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return c, fmt.Errorf("install: %s %w, because it does not exist: create it with the lines `version = 3` and "+
			"`imports = [%q]`, restart containerd, and install again",
			o.Config, errNoImport, pattern)
	case err != nil:
		return c, err
	case c.Version < 2:
		return c, fmt.Errorf("install: %s has version %d, which cannot be extended: rewrite it with `containerd config "+
			"migrate`, and install again", o.Config, c.Version)
	}
	for _, p := range c.imports(o.Config) {
		if ok, err := filepath.Match(p, o.DropIn); err == nil && ok {
			return c, nil
		}
	}
	return c, fmt.Errorf("install: %s %w %s: write %s above its first [table] and install again; containerd does not "+
		"have to be restarted by hand",
		o.Config, errNoImport, o.DropIn, importsLine(c.Imports, pattern))
}

// importsLine returns the line to write instead of the one that does not import the drop-in.
func importsLine(have []string, pattern string) string {
	quoted := make([]string, 0, len(have)+1)
	for _, s := range append(slices.Clone(have), pattern) {
		quoted = append(quoted, fmt.Sprintf("%q", s))
	}
	return "`imports = [" + strings.Join(quoted, ", ") + "]`"
}

// encode returns t as TOML. Equal tables give equal bytes.
func encode(t table) ([]byte, error) {
	buf := bytes.NewBufferString(note)
	e := toml.NewEncoder(buf)
	e.Indent = ""
	if err := e.Encode(t); err != nil {
		return nil, fmt.Errorf("install: write a configuration: %w", err)
	}
	return buf.Bytes(), nil
}

// removeFile removes a file and reports whether there was one.
func removeFile(path string) (bool, error) {
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("uninstall: %w", err)
	}
	return true, nil
}
