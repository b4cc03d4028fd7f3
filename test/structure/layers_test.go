package structure

import (
	"strconv"
	"strings"
	"testing"
)

// floors has, for each top-level room, the rooms that it may import besides itself. What is not here may import all.
var floors = map[string][]string{
	"api":     {},
	"storage": {"api"},
	"runsc":   {"api"},
	"cri":     {"runsc", "api"},
	"agent":   {"cri", "runsc", "storage", "api"},
	"cmd":     {"agent", "cri", "runsc", "storage", "api"},
}

// TestLayers: an arrow between packages may skip a floor and never goes up: cmd, agent, cri, runsc, api; and agent,
// storage, api. So runsc knows neither containerd's pods nor storage, and storage knows no pod.
func TestLayers(t *testing.T) {
	for room, below := range floors {
		for _, s := range sources(t, room) {
			for _, imported := range s.imports() {
				if !inside(imported, append([]string{room}, below...)...) {
					t.Errorf("%s imports %s; %s may import %v alone", s.dir, imported, room, below)
				}
			}
		}
	}
}

// imports returns the directories of the module's packages that s imports.
func (s *source) imports() (dirs []string) {
	for _, f := range s.files {
		for _, i := range f.Imports {
			path, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				panic(err) // the parser has read it
			}
			if dir, ok := strings.CutPrefix(path, module+"/"); ok {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs
}
