package restore

import (
	"time"
)

// state is how far a restore has come.
type state int

// States of a restore.
const (
	reading state = iota // the sandbox reads its image
	loaded               // root file systems only: all containers have their files, and may read them again
	failing              // the shim says that the restore has failed; its sidecar is still there
	ending               // the sandbox ends, or is being ended, because its memory or files cannot be read
	ended                // nothing is served any longer
)

// event is what happens to a restore.
type event int

// Events of a restore.
const (
	allLoaded  event = iota // the shim says that all containers have all their files
	shimFailed              // the shim says that the restore has failed. The shim ends the sandbox
	filesLost               // the sandbox has asked for memory or files that cannot be read
	over                    // the sandbox has all its memory, has gone, or will not be restored
)

// transitions maps a state and an event to the next state. An event that is missing changes nothing.
var transitions = map[state]map[event]state{
	reading: {allLoaded: loaded, shimFailed: failing, filesLost: ending, over: ended},
	loaded:  {shimFailed: failing, filesLost: ending, over: ended},
	failing: {over: ended},
	ending:  {shimFailed: failing, over: ended},
	ended:   {},
}

// on applies an event, and reports whether it has changed the state. The caller holds r.mu.
func (r *restore) on(e event) bool {
	next, ok := transitions[r.state][e]
	if ok {
		r.state = next
	}
	return ok
}

// newRestore returns a restore that has just begun.
func newRestore(rec record) *restore {
	return &restore{
		record: rec, ended: make(chan struct{}), may: make(chan struct{}), decided: make(chan struct{}), start: time.Now(),
	}
}
