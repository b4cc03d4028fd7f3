package agent

import (
	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/terminal"
)

// noteTerminals records how the terminals of the containers are set, by what the shim has left in the
// request's directory. Without it those of a restored pod are set as new ones are.
func (c *checkpoint) noteTerminals(dir string) {
	all, err := terminal.Load(dir)
	if err != nil {
		c.log.Warn("the snapshot does not hold how its terminals are set", "error", err)
	}
	for i := range c.meta.Pod.Containers {
		x := &c.meta.Pod.Containers[i]
		x.Terminal = all[x.Name]
	}
}

// terminalsOf returns how the terminals of a recorded pod are set, by the names of their containers.
func terminalsOf(p snapshot.Pod) map[string]*localv1.Terminal {
	all := make(map[string]*localv1.Terminal)
	for _, c := range p.Containers {
		if t := c.Terminal; t != nil {
			all[c.Name] = &localv1.Terminal{
				Iflag: t.Input, Oflag: t.Output, Cflag: t.Control, Lflag: t.Local, Cc: t.Characters,
				Rows: uint32(t.Rows), Columns: uint32(t.Columns),
			}
		}
	}
	return all
}
