package main

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"net/url"
	"os"
	"path"
	"runtime/debug"
	"strings"

	"diapause.dev/test/images"
	"diapause.dev/test/tools"
	"github.com/opencontainers/go-digest"
)

// program is a program of the image.
type program struct {
	path   string // in the image, without a leading slash
	digest digest.Digest
	info   *debug.BuildInfo // as "go version -m" prints it
}

// readPrograms reads the programs of a release, in the order of their paths.
func readPrograms(bin tools.Bin) ([]program, error) {
	var programs []program
	for _, name := range tools.ReleasePrograms() {
		data, err := os.ReadFile(bin.Path(name))
		if err != nil {
			return nil, err
		}
		info, err := buildinfo.Read(bytes.NewReader(data))
		if err != nil {
			return nil, fmt.Errorf("modules of %s: %w", bin.Path(name), err)
		}
		programs = append(programs, program{path.Join(images.AgentDir, name), digest.FromBytes(data), info})
	}
	return programs, nil
}

// module is the module that holds the program's package main: Diapause's own, or gVisor's.
func (p program) module() debug.Module {
	for _, m := range p.modules() {
		if p.info.Path == m.Path || strings.HasPrefix(p.info.Path, m.Path+"/") {
			return m
		}
	}
	return p.info.Main
}

// modules are the modules of the program's packages, other than Diapause's own.
func (p program) modules() []debug.Module {
	var modules []debug.Module
	for _, m := range p.info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		modules = append(modules, *m)
	}
	return modules
}

// moduleURL is the package URL of a version of a module.
func moduleURL(path, version string) string {
	return "pkg:golang/" + path + "@" + url.QueryEscape(version)
}

// goVersion is the version of Go that built the programs, such as go1.26.0.
func goVersion(programs []program) string { return programs[0].info.GoVersion }
