package shim

import (
	"os"
	"strconv"
)

// internalError is the exit status that gVisor's shim reports if it could not learn one.
const internalError = 128

// translated returns the status to report instead of status, see process.translateExits.
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
	return statusKilled
}
