// Package panics finds out why Go's runtime has ended a sandbox.
package panics

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"gvisor.dev/gvisor/pkg/shim/v1/utils"
)

const (
	// maxRead bounds how much of what a dying sandbox has written is read, in bytes.
	maxRead = 64 << 10
	// maxQuote bounds how much of it an error quotes, in bytes.
	maxQuote = 300
)

// deadly is the line by which Go's runtime says why it ends a process.
var deadly = regexp.MustCompile(`(?m)^(?:panic: |fatal error: |SIG[A-Z]+: |runtime: out of memory).*$`)

// Log is the file into which gVisor has Go's runtime write why it ends a sandbox: gvisor_panic.log in the pod's log
// directory. The sandbox can write into it, too.
type Log struct {
	path string
	from int64 // where it ended when From looked
}

// From returns the log of the pod whose sandbox container has these annotations, from its present end on.
func From(annotations map[string]string) (l Log) {
	l.path = utils.PanicLogPath(&specs.Spec{Annotations: annotations})
	if fi, err := os.Stat(l.path); err == nil {
		l.from = fi.Size()
	}
	return l
}

// Explain adds to an error why Go's runtime has ended the sandbox since, if it has.
func (l Log) Explain(err error) error {
	f, failed := os.Open(l.path)
	if failed != nil {
		return err
	}
	defer f.Close()
	text := make([]byte, maxRead)
	n, failed := f.ReadAt(text, l.from)
	if failed != nil && !errors.Is(failed, io.EOF) {
		return err
	}
	why := deadly.Find(text[:n])
	if why == nil {
		return err
	}
	return fmt.Errorf("%w: the sandbox died of %.*q (see %s)", err, maxQuote, why, l.path)
}
