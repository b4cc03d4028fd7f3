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

// agentFloors are the floors of room agent, from the top. Those who speak with others decide what is done. A floor
// below does it, and the next one knows which bytes a sandbox needs, and which snapshots there are. What is a directory
// with a slash at its end stands for all packages below it. What is not here is on the ground.
var agentFloors = [][]string{
	{"agent"}, // makes the parts and connects them
	{"agent/local", "agent/kube", "agent/kube/"},
	{"agent/sleep"},
	{"agent/checkpoint", "agent/restore", "agent/newpods"},
	{
		"agent/checkpoint/", "agent/loading", "agent/workingset", "agent/asleep", "agent/volumes", "agent/lives",
		"agent/storemetrics",
	},
	{"agent/snapshots"},
	{"agent/place"},
}

// TestFloorsOfAgent: an arrow between packages of the agent does not go to a higher floor.
func TestFloorsOfAgent(t *testing.T) {
	used := make(map[string]bool)
	for _, s := range sources(t, "agent") {
		own := floorOf(s.dir, used)
		for _, imported := range s.imports() {
			if above := floorOf(imported, used); inside(imported, "agent") && above < own {
				t.Errorf("%s imports %s, which is %d floors above it", s.dir, imported, own-above)
			}
		}
	}
	for _, floor := range agentFloors {
		for _, dir := range floor {
			if !used[dir] {
				t.Errorf("%s was not found: take it from the list", dir)
			}
		}
	}
}

// floorOf returns the floor of a package, as an index of agentFloors, and notes by which entry it was found.
func floorOf(dir string, used map[string]bool) int {
	for i, floor := range agentFloors {
		for _, entry := range floor {
			if dir == entry || strings.HasSuffix(entry, "/") && strings.HasPrefix(dir, entry) {
				used[entry] = true
				return i
			}
		}
	}
	return len(agentFloors)
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
