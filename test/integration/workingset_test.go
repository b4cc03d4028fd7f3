package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"testing"
	"time"

	"diapause.dev/test/bed"
	"diapause.dev/test/workload/answers"
)

// TestWorkingSet restores a pod three times. The first restore records what the pod waits for, and the others begin
// with that: a sandbox of the repaired build loads it before anything else. Each has all its memory, and the working
// set stays, though hardly anything is waited for by then. A snapshot of the last one begins with what it shares of
// it.
//
// The store is slow until the first pod has read something: it would have all memory before that, and wait for nothing.
func TestWorkingSet(t *testing.T) {
	n, wire, flags := startSlow(t, bed.Options{})
	wire.turn.Lock()
	wire.wait = 10 * time.Millisecond // of 130 MiB, 66 are stored: 20 seconds
	wire.turn.Unlock()
	boot := n.serving(n.workload("origin", "serve", "--mib=128")).Boot
	n.checkpoint("--name=saved", "origin")
	n.restartAgent(flags()...) // which has nothing of it on the node
	var before int64
	for _, name := range []string{"first", "second", "third"} {
		p, err := n.bed.RunPod(n.ctx, fromSnapshot(name, "default/saved", "serve", "--mib=128"))
		if err != nil {
			t.Fatal(err)
		}
		var touched answers.Touched
		n.eventually(name+" reads some of its memory", func() error { return n.get(p, "/touch?mib=8&pieces=4", &touched) })
		if touched.Pages != 8<<8 {
			t.Errorf("%s: %+v", name, touched)
		}
		wire.fast.Store(true)
		n.checkWhole(p, boot, 128)
		n.eventually(name+" has all its memory", func() error {
			if len(n.restores()) > 0 {
				return errors.New("it is still being restored")
			}
			return nil
		})
		n.eventually("what "+name+" has waited for is in the store", func() error {
			now := n.workingSetSize()
			if now == 0 || now < before {
				return fmt.Errorf("the working set has %d bytes, and had %d", now, before)
			}
			before = now
			return nil
		})
		if name == "third" {
			n.checkpoint("--name=next", name)
		}
		if err := n.bed.RemovePod(n.ctx, p.ID); err != nil {
			t.Fatal(err)
		}
	}
	p, err := n.bed.RunPod(n.ctx, fromSnapshot("heir", "default/next", "serve", "--mib=128"))
	if err != nil {
		t.Fatal(err)
	}
	n.checkWhole(p, boot, 128)
}

// workingSetSize returns the size of the only working set in the store of [startSlow], or 0.
func (n *node) workingSetSize() (size int64) {
	n.Helper()
	resp, err := bed.Client.Get("http://" + os.Getenv("STORAGE_EMULATOR_HOST") + "/storage/v1/b/bucket/o")
	if err != nil {
		n.Fatal(err)
	}
	defer resp.Body.Close()
	var list struct{ Items []struct{ Name, Size string } }
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		n.Fatal(err)
	}
	for _, o := range list.Items {
		if path.Base(o.Name) != "workingset" {
			continue
		}
		if size, err = strconv.ParseInt(o.Size, 10, 64); err != nil {
			n.Fatal(err)
		}
	}
	return size
}
