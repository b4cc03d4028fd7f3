package answered

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	"golang.org/x/sys/unix"
)

// TestHostilePipes: a pipe that nobody reads is waited for no longer than its limit.
func TestHostilePipes(t *testing.T) {
	done, cancel := context.WithCancel(t.Context())
	cancel()
	name := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := closePipe(done, name); !errors.Is(err, context.Canceled) {
		t.Errorf("nobody reads: %v", err)
	}
	if err := closePipe(t.Context(), name+"s"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no pipe: %v", err)
	}
	if err := closePipe(t.Context(), ""); err != nil {
		t.Error(err)
	}
}

// TestHostileMany: no more processes are answered for than is allowed, and none is left of a container that is deleted.
func TestHostileMany(t *testing.T) {
	var a Execs
	for i := range most + 1 {
		r := &task.ExecProcessRequest{ID: "a", ExecID: strconv.Itoa(i)}
		if _, err := a.Answer(r, 0); (err != nil) != (i == most) {
			t.Fatalf("answer %d: %v", i, err)
		}
	}
	if a.ForgetAll("b"); len(a.all) != most {
		t.Errorf("%d are left", len(a.all))
	}
	if a.ForgetAll("a"); len(a.all) != 0 {
		t.Errorf("%d are left", len(a.all))
	}
}
