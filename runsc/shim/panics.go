package shim

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
	// maxPanicLog bounds how much of what a dying sandbox has written is read, in bytes.
	maxPanicLog = 64 << 10
	// maxPanic bounds how much of it an error quotes, in bytes.
	maxPanic = 300
)

// deadly is the line by which Go's runtime says why it ends a process.
var deadly = regexp.MustCompile(`(?m)^(?:panic: |fatal error: |SIG[A-Z]+: |runtime: out of memory).*$`)

// panics is the file into which gVisor has Go's runtime write why it ends a sandbox: gvisor_panic.log in the pod's log
// directory. The sandbox can write into it, too.
type panics struct {
	path string
	from int64 // where it ended when panicsFrom looked
}

// panicsFrom returns the file of the pod with these annotations, from its present end on.
func panicsFrom(annotations map[string]string) (p panics) {
	p.path = utils.PanicLogPath(&specs.Spec{Annotations: annotations})
	if fi, err := os.Stat(p.path); err == nil {
		p.from = fi.Size()
	}
	return p
}

// explain adds to an error why Go's runtime has ended the sandbox since, if it has.
func (p panics) explain(err error) error {
	f, failed := os.Open(p.path)
	if failed != nil {
		return err
	}
	defer f.Close()
	text := make([]byte, maxPanicLog)
	n, failed := f.ReadAt(text, p.from)
	if failed != nil && !errors.Is(failed, io.EOF) {
		return err
	}
	why := deadly.Find(text[:n])
	if why == nil {
		return err
	}
	return fmt.Errorf("%w: the sandbox died of %.*q (see %s)", err, maxPanic, why, p.path)
}
