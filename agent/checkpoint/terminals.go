package checkpoint

import (
	"diapause.dev/runsc/terminal"
)

// noteTerminals records the terminal settings of the containers, which the shim has left in the request's directory. If
// they cannot be read, the terminals of a restored pod get the settings of new ones.
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
