package agent

import (
	"maps"
	"slices"

	"diapause.dev/api/snapshot"
)

// exitCodesOf returns how containers of a recorded pod had ended, by their names.
func exitCodesOf(p snapshot.Pod) map[string]int32 {
	codes := make(map[string]int32)
	for _, c := range p.Ended {
		codes[c.Name] = c.ExitCode
	}
	return codes
}

// union returns names, and those of codes that are not among them.
func union(names []string, codes map[string]int32) []string {
	all := slices.Clone(names)
	for _, name := range slices.Sorted(maps.Keys(codes)) {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}
