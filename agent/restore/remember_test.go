package restore

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"diapause.dev/agent/asleep"
	"diapause.dev/agent/journal/journaltest"
	"diapause.dev/agent/requests"
	"diapause.dev/api/snapshot"
)

// victimDir is an environment variable. It names the request directory for the process that TestRememberedIsWhole
// kills.
const victimDir = "DIAPAUSE_TEST_REQUESTS"

// TestRememberedIsWhole runs a process that keeps writing down how far a restore has come, and kills it at random
// instants. The next agent must always be able to continue the restore.
func TestRememberedIsWhole(t *testing.T) {
	dir := os.Getenv(victimDir)
	if dir != "" {
		rememberForever(t, dir)
	}
	dir = t.TempDir()
	rs := recalling(requests.Dir(dir))
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for i := range 40 {
		request := fmt.Sprint("request", i)
		if err := os.Mkdir(filepath.Join(dir, request), 0o700); err != nil {
			t.Fatal(err)
		}
		killWhileRemembering(t, dir, request, time.Duration(random.Int64N(int64(3*time.Millisecond))))
		if r, err := rs.registry.recall(request); err != nil || r.Request != request {
			t.Errorf("kill %d: %+v, %v", i, r, err)
		}
	}
}

// recalling returns restores that can write down and recall how far they have come.
func recalling(d requests.Dir) *Restores {
	return New(Config{Requests: d, Marks: asleep.NewMarks(d, journaltest.Quiet)})
}

// killWhileRemembering starts a process that writes the record of a request, and kills it some time after its first
// write.
func killWhileRemembering(t *testing.T, dir, request string, after time.Duration) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRememberedIsWhole$")
	cmd.Env = append(os.Environ(), victimDir+"="+filepath.Join(dir, request))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil { // it has written the record once
		t.Error(err)
	}
	time.Sleep(after)
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // it was killed
}

// rememberForever writes the record of a request again and again until it is killed.
func rememberForever(t *testing.T, dir string) {
	rs := recalling(requests.Dir(filepath.Dir(dir)))
	r := newRestore(record{Request: filepath.Base(dir), Key: snapshot.Key{Namespace: "n", Name: "s"}})
	for first := true; ; first = false {
		if r.Loaded = !r.Loaded; rs.registry.remember(r) != nil {
			t.Fatal("not remembered")
		}
		if first {
			fmt.Print("+")
		}
	}
}

// TestUnansweredIsForgotten: an agent that is killed before it has told the shim its decision leaves a request that
// nobody knows of. It goes with the request that the shim gets from the next agent. Those of other sandboxes stay.
func TestUnansweredIsForgotten(t *testing.T) {
	a := newRig(t)
	a.make(t, "one", "page", snapshot.WholePod)
	a.mustPrepare(t, "sandbox")
	other := a.mustPrepare(t, "other")
	a.next(t)
	again := a.mustPrepare(t, "sandbox")
	a.finish(again, nil)
	if left, err := a.Requests.All(); err != nil || !slices.Equal(left, []string{other.Request}) {
		t.Errorf("%v are left, want %s; %v", left, other.Request, err)
	}
}
