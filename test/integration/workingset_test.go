package integration

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"diapause.dev/test/workload/answers"
)

// TestWorkingSet restores a pod three times. The first restore records what the pod waits for, and the others begin
// with that: a sandbox of the second build loads it before anything else. Each has all its memory, and the working set
// stays, though hardly anything is waited for by then. A snapshot of the last one begins with what it shares of it.
func TestWorkingSet(t *testing.T) {
	at := newPlace(t)
	n := start(t, at.flags()...)
	boot := n.serving(n.workload("origin", "serve", "--mib=128")).Boot
	n.checkpoint("--name=saved", "origin")
	var before int64
	// A slow machine may load everything before the program asks for anything: then the sandbox has waited for nothing,
	// and there is no working set until one waits.
	names := []string{"first", "second", "third"}
	for i := 0; i < len(names); i++ {
		name := names[i]
		p, err := n.bed.RunPod(n.ctx, fromSnapshot(name, "default/saved", "serve", "--mib=128"))
		if err != nil {
			t.Fatal(err)
		}
		var touched answers.Touched
		n.eventually(name+" reads some of its memory", func() error { return n.get(p, "/touch?mib=8&pieces=4", &touched) })
		if touched.Pages != 8<<8 {
			t.Errorf("%s: %+v", name, touched)
		}
		n.checkWhole(p, boot, 128)
		n.eventually(name+" has all its memory", func() error {
			if len(n.restores()) > 0 {
				return errors.New("it is still being restored")
			}
			return nil
		})
		now, err := workingSetSize(at.store)
		if err != nil { // until the test's time is over, when no pod can be run
			t.Logf("%s: %v", name, err)
			names = slices.Insert(names, i+1, name+"-again")
		}
		if now < before {
			t.Errorf("the working set has %d bytes after %s, and had %d", now, name, before)
		}
		before = now
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

// workingSetSize returns the size of the only working set in a store.
func workingSetSize(store string) (size int64, err error) {
	err = errors.New("no working set")
	walkErr := filepath.WalkDir(store, func(path string, d os.DirEntry, walkErr error) error {
		if walkErr != nil || d.Name() != "workingset" {
			return walkErr
		}
		info, infoErr := d.Info()
		if infoErr == nil {
			size, err = info.Size(), nil
		}
		return infoErr
	})
	return size, errors.Join(err, walkErr)
}
