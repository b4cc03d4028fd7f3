package shim

import (
	"os"
	"strconv"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/shim/v1/proc"
)

const (
	// internalError is the exit status that gVisor's shim reports if it could not learn one.
	internalError = 128
	// killed is the exit status of a process ended by SIGKILL, in a shell's notation.
	killed = 128 + 9
)

// exitBacklog is how many exits may be queued. GVisor's own channel holds as many.
const exitBacklog = 32

// exits are the exits of this process's containers on their way to gVisor's task service.
var exits exitStream

// exitStream stands between the code that announces a container's exit and gVisor's task service, which keeps the
// exit status, publishes it and answers with it.
type exitStream struct{ once sync.Once }

// translate makes the stream replace exit statuses from now on. If the marker file exists, the sandbox was stopped on
// purpose; then a status that gVisor could not learn becomes the one in the file or, if the file is empty, that of a
// process ended by SIGKILL. Call it after the task service was made and before the service starts a container. The
// stream lasts as long as the process, like the service that reads from it.
func (s *exitStream) translate(marker string) {
	s.once.Do(func() {
		out, in := proc.ExitCh, make(chan proc.Exit, exitBacklog)
		proc.ExitCh = in
		go func() {
			for e := range in {
				if quiet.take(e.ID) {
					continue
				}
				consoles.exited(e.ID)
				quiet.exited(e.ID)
				e.Status = translated(e.Status, marker)
				out <- e
			}
		}()
	})
}

// translated returns the status to report instead of status.
func translated(status int, marker string) int {
	if status != internalError {
		return status
	}
	data, err := os.ReadFile(marker)
	if err != nil {
		return status
	}
	if wanted, err := strconv.ParseUint(string(data), 10, 8); err == nil {
		return int(wanted)
	}
	return killed
}

// announce makes gVisor's task service record that a container has exited.
func announce(id string) {
	proc.ExitCh <- proc.Exit{Timestamp: time.Now(), ID: id, Status: internalError}
}
