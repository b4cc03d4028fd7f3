package runsc

import "gvisor.dev/gvisor/pkg/sentry/state/checkpointfiles"

// Names of files of an image, as gVisor writes it (pkg/sentry/state/checkpointfiles).
const (
	// PagesFile holds the memory.
	PagesFile = checkpointfiles.PagesFileName
	// StateFile holds the kernel's objects. It is read first.
	StateFile = checkpointfiles.StateFileName
)
