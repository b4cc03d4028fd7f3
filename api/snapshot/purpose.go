package snapshot

// Purpose is what a snapshot is for, and so which pods it serves.
type Purpose string

// The purposes.
const (
	// ForCheckpoint: somebody asked for the snapshot. It serves every pod that fits. Manifests of earlier agents have no
	// purpose, which means this one.
	ForCheckpoint Purpose = "checkpoint"
	// ForTermination: the pod was saved because it was deleted. It serves every pod that fits.
	ForTermination Purpose = "termination"
	// ForSleep: the pod was saved to sleep. It serves its own pod alone, while that sleeps or wakes.
	ForSleep Purpose = "sleep"
)

// String returns the purpose's name.
func (p Purpose) String() string {
	if p == "" {
		return string(ForCheckpoint)
	}
	return string(p)
}
