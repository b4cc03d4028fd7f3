package restore

import (
	"diapause.dev/api/snapshot"
)

// exitCodesOf returns the exit codes of the containers of a recorded pod that had ended, by their names.
func exitCodesOf(p snapshot.Pod) map[string]int32 {
	codes := make(map[string]int32)
	for _, c := range p.Ended {
		codes[c.Name] = c.ExitCode
	}
	return codes
}

// terminalsOf returns the terminal settings of a recorded pod's containers, by their names.
func terminalsOf(p snapshot.Pod) map[string]*snapshot.Terminal {
	all := make(map[string]*snapshot.Terminal)
	for _, c := range p.Containers {
		if c.Terminal != nil {
			all[c.Name] = c.Terminal
		}
	}
	return all
}
