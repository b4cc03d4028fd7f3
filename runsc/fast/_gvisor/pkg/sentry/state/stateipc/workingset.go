package stateipc

import (
	"encoding/binary"
	"fmt"
	"io"

	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/state/stateio"
)

// workingSetFile is the file in which a server says which parts of the file that is read by lanes are to be read first.
// It consists of records of two numbers of 8 bytes each, little-endian: the offset and the length of a part, in bytes.
const workingSetFile = "working_set.img"

const (
	workingSetRecord = 16
	maxWorkingSet    = 1 << 16 // records
	// workingSetBuffer is how much of the file is read at a time, in bytes.
	workingSetBuffer = 256 << 10
)

// openWorkingSet returns the working set of a server, or nil if it has none. What has to be allowed by system call
// filters happens here, and not when it is read.
func (c *AsyncFileClient) openWorkingSet() io.ReadCloser {
	f, err := c.open(workingSetFile, OpenModeRead)
	if err != nil {
		log.Infof("No working set: %v", err)
		return nil
	}
	r, err := stateio.NewBufReader(f, workingSetBuffer)
	if err != nil {
		log.Warningf("No working set: %v", err)
		return nil
	}
	return r
}

// WorkingSet returns which parts of the file are to be read first, in that order. They may overlap, and lie outside of
// the file. There are none if the server does not say. Only one call may be made, and none together with Close.
func (l *Lanes) WorkingSet() []memmap.FileRange {
	if l.working == nil {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(l.working, maxWorkingSet*workingSetRecord))
	if err == nil {
		err = l.closeWorkingSet()
	}
	if err != nil {
		log.Warningf("No working set: %v", err)
		return nil
	}
	return decodeWorkingSet(data)
}

// decodeWorkingSet leaves out what is no range, and what is cut off.
func decodeWorkingSet(data []byte) (parts []memmap.FileRange) {
	for ; len(data) >= workingSetRecord; data = data[workingSetRecord:] {
		off, n := binary.LittleEndian.Uint64(data), binary.LittleEndian.Uint64(data[8:])
		if r := (memmap.FileRange{off, off + n}); r.WellFormed() && n > 0 {
			parts = append(parts, r)
		}
	}
	return parts
}

func (l *Lanes) closeWorkingSet() error {
	if l.working == nil {
		return nil
	}
	err := l.working.Close()
	l.working = nil
	if err != nil {
		return fmt.Errorf("close working set: %w", err)
	}
	return nil
}
