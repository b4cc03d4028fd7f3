package checkpoint

import (
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
