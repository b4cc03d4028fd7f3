package shim

import (
	"os"
	"strconv"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/shim/v1/proc"
)

const (
	// internalError is the exit status that gVisor's shim reports when it could not learn one.
	internalError = 128
	// killed is the exit status of a process ended by SIGKILL, as a shell tells it.
	killed = 128 + 9
)

// exitBacklog is how many exits may wait to be taken; gVisor's own channel has as many.
const exitBacklog = 32

// exits are the exits of this process's containers on their way to gVisor's task service.
var exits exitStream

// exitStream puts itself between those who announce the exit of a container and gVisor's task
// service, which keeps the exit status, publishes it and answers with it.
type exitStream struct{ once sync.Once }

// translate has the exit status of every container from now on looked at: one that gVisor could
// not learn, of a sandbox for which the marker file exists, is the one that the file holds or, if it
// is empty, that of a process ended by SIGKILL.
// It must be called after the task service was made and before it starts a container. The stream
// lasts as long as the process, like the service that reads from it.
func (s *exitStream) translate(marker string) {
	s.once.Do(func() {
		out, in := proc.ExitCh, make(chan proc.Exit, exitBacklog)
		proc.ExitCh = in
		go func() {
			for e := range in {
				consoles.exited(e.ID)
				e.Status = translated(e.Status, marker)
				out <- e
			}
		}()
	})
}

// translated returns the status to report in place of status.
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

// announce makes gVisor's task service take a container for exited.
func announce(id string) {
	proc.ExitCh <- proc.Exit{Timestamp: time.Now(), ID: id, Status: internalError}
}
