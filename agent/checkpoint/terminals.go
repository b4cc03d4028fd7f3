package checkpoint

import (
	"log/slog"

	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/terminal"
)

// noteTerminals records the terminal settings of the containers, which the shim has left in the request's directory. If
// they cannot be read, the terminals of a restored pod get the settings of new ones.
func noteTerminals(dir string, pod *snapshot.Pod, log *slog.Logger) {
	all, err := terminal.Load(dir)
	if err != nil {
		log.Warn("the snapshot does not hold how its terminals are set", "error", err)
	}
	for i := range pod.Containers {
		x := &pod.Containers[i]
		x.Terminal = all[x.Name]
	}
}
