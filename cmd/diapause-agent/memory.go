package main

import (
	"os"
	"runtime/debug"
)

// gcPercent lets garbage grow to half of what is in use, and not to as much. In a cluster most of an agent's memory are
// copies of PodSnapshots, and little of that ever is garbage.
const gcPercent = 50

// saveMemory sets gcPercent, unless the environment says otherwise.
func saveMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}
