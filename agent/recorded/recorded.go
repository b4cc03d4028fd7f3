// Package recorded reads what a snapshot records of its pod, which may be anything.
package recorded

import (
	"fmt"

	"diapause.dev/agent/errkind"
	"diapause.dev/api/snapshot"
	"diapause.dev/cri/plan"
)

// maxContainers bounds how many containers a snapshot may name. All their names go to the shim in one message.
const maxContainers = 1000

// maxCharacters bounds the control characters of a terminal.
const maxCharacters = 64

// Check returns an error of kind errkind.ErrInvalid unless a recorded pod is small enough for a shim, and its
// containers have names that containers have.
func Check(p snapshot.Pod) error {
	all := p.Containers[:len(p.Containers):len(p.Containers)]
	for _, c := range p.Ended {
		all = append(all, c.Container)
	}
	if len(all) > maxContainers {
		return fmt.Errorf("%w: its record names %d containers: want at most %d", errkind.ErrInvalid, len(all), maxContainers)
	}
	for _, c := range all {
		if !plan.ValidContainer(c.Name) {
			return fmt.Errorf("%w: its record names a container %.80q", errkind.ErrInvalid, c.Name)
		}
		if c.Terminal != nil && len(c.Terminal.Characters) > maxCharacters {
			return fmt.Errorf("%w: its record has %d control characters for the terminal of container %s",
				errkind.ErrInvalid, len(c.Terminal.Characters), c.Name)
		}
	}
	return nil
}

// ExitCodes returns the exit codes of the containers of a recorded pod that had ended, by their names.
func ExitCodes(p snapshot.Pod) map[string]int32 {
	codes := make(map[string]int32)
	for _, c := range p.Ended {
		codes[c.Name] = c.ExitCode
	}
	return codes
}

// Terminals returns the terminal settings of a recorded pod's containers, by their names.
func Terminals(p snapshot.Pod) map[string]*snapshot.Terminal {
	all := make(map[string]*snapshot.Terminal)
	for _, c := range p.Containers {
		if c.Terminal != nil {
			all[c.Name] = c.Terminal
		}
	}
	return all
}
