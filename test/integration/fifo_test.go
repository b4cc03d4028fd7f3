package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"diapause.dev/test/bed"
	"diapause.dev/test/images"
)

// readFIFO is a shell's loop that waits in the open of a FIFO, and notes each line that comes. It ends at an error.
const readFIFO = `mkfifo /fifo; while read line < /fifo; do echo "$line" > /last; done
echo ended > /last; sleep 1000000`

// TestFIFO has a shell wait in the open of a FIFO. It goes on waiting over a checkpoint, in a restored pod, and over a
// sleep. With gVisor's own build, the open fails in a pod that merely runs on, and the loop ends.
func TestFIFO(t *testing.T) {
	n := start(t)
	p, err := n.bed.RunPod(n.ctx, bed.PodSpec{Name: "origin", Containers: []bed.Container{
		{Name: "app", Image: images.Busybox, Command: []string{"sh", "-c", readFIFO}},
	}})
	must(t, err)
	n.passes(p, "before")
	n.checkpoint("origin", "--name=one")
	if !repairedBuild(t) {
		n.eventually("the loop has ended", func() error { return n.lastIs(p, "ended") })
		return
	}
	n.passes(p, "after")
	n.passes(n.restore("one", "--name=branch")[0], "in a branch")
	n.asleep(p)
	n.passes(p, "after a sleep")
}

// passes writes a line to the FIFO of a pod, and waits until it was read.
func (n *node) passes(p *bed.Pod, line string) {
	n.Helper()
	ctx, cancel := context.WithTimeout(n.ctx, time.Minute) // busybox's timeout leaves a child behind: SIGCHLD, and EINTR
	defer cancel()
	out, code, err := n.bed.Exec(ctx, p.Container("app"), "/bin/sh", "-c", "echo '"+line+"' > /fifo")
	if err != nil || code != 0 {
		n.Errorf("write %q: exit code %d, %v: %s", line, code, err, out)
	}
	n.eventually(line, func() error { return n.lastIs(p, line) })
}

// lastIs returns an error unless a line is the last that came from the FIFO of a pod.
func (n *node) lastIs(p *bed.Pod, line string) error {
	out, _, err := n.bed.Exec(n.ctx, p.Container("app"), "/bin/cat", "/last")
	if err == nil && strings.TrimSpace(out) != line {
		err = fmt.Errorf("the last line is %q, want %q", out, line)
	}
	return err
}
