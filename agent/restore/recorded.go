package restore

import (
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

// terminalsOf returns how the terminals of a recorded pod are set, by the names of their containers.
func terminalsOf(p snapshot.Pod) map[string]*snapshot.Terminal {
	all := make(map[string]*snapshot.Terminal)
	for _, c := range p.Containers {
		if c.Terminal != nil {
			all[c.Name] = c.Terminal
		}
	}
	return all
}
