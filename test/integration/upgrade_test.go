package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"diapause.dev/test/bed"
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
