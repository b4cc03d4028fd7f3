package revive

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// StateOf returns where runsc keeps the state of a sandbox (gVisor, runsc/container/state_file.go).
func StateOf(root, id string) State {
	return State(filepath.Join(root, fmt.Sprintf("%s_sandbox:%s", id, id)))
}

// State is the path of the files of a container's state, without what tells one from the other.
type State string

// Begun reports whether runsc has begun to create the sandbox. From then on runsc itself has a container wait for its
// sandbox: by the lock that it holds.
func (s State) Begun() bool {
	f, err := os.Open(string(s) + ".lock")
	if err != nil {
		return false
	}
	defer f.Close() // gives the lock back
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// maxState bounds a container's state, in bytes. It holds the container's OCI spec.
const maxState = 16 << 20

// Waits reports whether the sandbox waits for its other containers: runsc has restored the sandbox container.
func (s State) Waits() bool {
	path := string(s) + ".state"
	if fi, err := os.Stat(path); err != nil || fi.Size() > maxState {
		return false
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return false
	}
	var state struct {
		Status string `json:"status"`
	}
	return json.Unmarshal(data, &state) == nil && state.Status == "running" // it may be being written
}

// statePoll is how often Await looks. To begin takes runsc some 20 ms, to create a sandbox some 70.
const statePoll = time.Millisecond

// Await waits until a state is reached, and returns false if over is closed before that.
func Await(reached func() bool, over <-chan struct{}) bool {
	tick := time.NewTicker(statePoll)
	defer tick.Stop()
	for !reached() {
		select {
		case <-tick.C:
		case <-over:
			return false
		}
	}
	return true
}
