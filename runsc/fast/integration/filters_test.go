package integration

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestFilters looks in the logs of a sandbox for where its system call filters come from: they were made when this
// runsc was built. The sentry and the gofer both say so.
func TestFilters(t *testing.T) {
	logs := t.TempDir()
	s := newSandbox(t, fast, "filters")
	s.flags = []string{"--debug", "--debug-log=" + logs + "/"}
	s.start(t)
	s.check(t)
	for _, of := range []string{"boot", "gofer"} {
		files, err := filepath.Glob(filepath.Join(logs, "*."+of+"*"))
		if err != nil || len(files) != 1 {
			t.Fatalf("logs of %s: %v, %v", of, files, err)
		}
		text, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(text, []byte("precompiled seccomp instructions")) {
			t.Errorf("%s makes its filters when it starts", of)
		}
	}
}
