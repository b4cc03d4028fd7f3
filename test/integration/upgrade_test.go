package integration

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"diapause.dev/test/bed"
	"diapause.dev/test/tools"
)

// TestRunscReplaced has the node get another runsc while a pod runs: its snapshots name the one that
// the pod runs.
func TestRunscReplaced(t *testing.T) {
	n := start(t)
	p := n.workload("origin", "serve", "--mib=8")
	before := n.serving(p)
	n.checkpoint("--name=first", "origin")
	n.replaceRunsc()
	n.checkpoint("--name=second", "origin")
	n.workload("young", "serve", "--mib=8")
	n.checkpoint("--name=third", "young")
	first, second, third := n.runscDigest("first"), n.runscDigest("second"), n.runscDigest("third")
	if first != second || first == third {
		t.Errorf("the same pod before and after: %s, %s; another pod: %s", first, second, third)
	}
	n.unharmed(p, before)
}

// TestOtherBuild has the other build take the place of a node's runsc, and back again. A pod that runs keeps its own:
// it is checkpointed, sleeps and wakes. One that sleeps wakes with the other, and what was saved before is restored.
func TestOtherBuild(t *testing.T) {
	n := start(t)
	for from, to := range map[string]string{bed.RunscStock: tools.RunscFast, tools.RunscFast: bed.RunscStock} {
		n.setRunsc(from)
		runs, sleeps := n.workload(from, "serve", "--mib", "16"), n.workload(from+"-sleeps", "serve", "--mib", "16")
		runsBoot, sleepsBoot := n.serving(runs).Boot, n.serving(sleeps).Boot
		n.checkpoint("--name="+from+"-before", from)
		n.asleep(sleeps)
		n.setRunsc(to)
		n.checkWhole(sleeps, sleepsBoot, 16)
		n.checkpoint("--name="+from+"-after", from)
		for _, when := range []string{"-before", "-after"} {
			n.checkWhole(n.restore(from+when, "--name="+from+when)[0], runsBoot, 16)
		}
		n.asleep(runs)
		n.checkWhole(runs, runsBoot, 16)
	}
}

// setRunsc puts a build of runsc in the place of the node's, as an installation does.
func (n *node) setRunsc(build string) {
	n.Helper()
	part := n.bed.Bin.Path("runsc.part")
	err := errors.Join(os.Link(n.bed.Bin.Path(build), part), os.Rename(part, n.bed.Bin.Path("runsc")),
		os.RemoveAll(part)) // it stays if runsc is that file already
	if err != nil {
		n.Fatal(err)
	}
}

// replaceRunsc configures another runsc of the same version.
func (n *node) replaceRunsc() {
	n.Helper()
	dir, err := os.MkdirTemp("", "runsc") // goes with the bed, whose pods need it to the end
	if err != nil {
		n.Fatal(err)
	}
	old := n.bed.Bin.Path("runsc")
	for _, name := range []string{"runsc", "gvisor-bin/checkpointgofer"} {
		data, err := os.ReadFile(n.bed.Bin.Path(name))
		if err == nil {
			err = os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), append(data, 0), 0o755) // an ELF file may be longer
		}
		if err != nil {
			n.Fatal(err)
		}
	}
	config, err := os.ReadFile(bed.RunscFile)
	if err == nil {
		err = os.WriteFile(bed.RunscFile, []byte(strings.ReplaceAll(string(config), old, filepath.Join(dir, "runsc"))), 0o644)
	}
	if err != nil {
		n.Fatal(err)
	}
}

func (n *node) runscDigest(name string) string {
	n.Helper()
	var out struct {
		Facts struct {
			Digest string `json:"runsc_digest"`
		} `json:"facts"`
	}
	n.decode(n.mustCLI("--output=json", "inspect", name), &out)
	if out.Facts.Digest == "" {
		n.Fatalf("facts %+v", out)
	}
	return out.Facts.Digest
}
