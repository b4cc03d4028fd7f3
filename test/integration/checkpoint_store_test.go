package integration

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestObjectStore checkpoints while the object store is away, has it come up, and restores from it
// alone.
func TestObjectStore(t *testing.T) {
	at := newPlace(t)
	port := closedPort(t)
	t.Setenv("STORAGE_EMULATOR_HOST", fmt.Sprint("127.0.0.1:", port))
	flags := []string{"--state-dir=" + at.state, "--store=gs://bucket/some/prefix"}
	n := start(t, flags...)
	p := n.workload("origin", "serve", "--mib", "16")
	before := n.serving(p)
	n.refused([]string{"default/first", "this node only", "gs://bucket/some/prefix"}, "checkpoint", "--name=first", "origin")
	n.alive(p, before)
	n.mustCLI("checkpoint", "--no-wait", "--name=second", "origin")
	b := n.restore("first", "--name=near")[0]
	if st := n.serving(b); st.Boot != before.Boot {
		t.Errorf("branch is at %+v, the snapshot was at %+v", st, before)
	}

	n.objectStore(port)
	n.settled(at) // by itself
	n.unharmed(p, before)

	n.agent.Kill()
	n.startAgent("--state-dir="+filepath.Join(t.TempDir(), "another"), "--store=gs://bucket/some/prefix")
	for _, name := range []string{"first", "second"} {
		if s := n.snapshot(name); s.OnNode || !s.Replicated {
			t.Errorf("snapshot %+v", s)
		}
		b := n.restore(name, "--name=far-"+name)[0]
		if st := n.serving(b); st.Boot != before.Boot {
			t.Errorf("branch is at %+v, the snapshot was at %+v", st, before)
		}
		n.verify(b)
	}
}

// closedPort returns a port of the loopback address that nobody listens on.
func closedPort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// objectStore runs a fake-gcs-server with an empty bucket until the test ends.
func (n *node) objectStore(port int) {
	n.Helper()
	root := n.TempDir()
	if err := os.Mkdir(filepath.Join(root, "bucket"), 0o755); err != nil {
		n.Fatal(err)
	}
	address := fmt.Sprint("127.0.0.1:", port)
	cmd := exec.Command(n.bed.Bin.Path("fake-gcs-server"), "-scheme", "http", "-host", "127.0.0.1", "-port", fmt.Sprint(port),
		"-filesystem-root", root, "-log-level", "error", "-public-host", address, "-external-url", "http://"+address)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // says that it was killed
		if n.Failed() {
			n.Logf("fake-gcs-server:\n%s", &out)
		}
	})
	n.eventually("object store answers", func() error {
		r, err := http.Get("http://" + address + "/storage/v1/b/bucket")
		if err != nil {
			return err
		}
		if r.StatusCode != http.StatusOK {
			return fmt.Errorf("%s", r.Status)
		}
		return r.Body.Close()
	})
}
