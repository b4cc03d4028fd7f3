package restore

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/gofer"
	"diapause.dev/runsc/sidecar"
)

// TestStatesEnd: every restore can end from any state, once. After that no event changes it.
func TestStatesEnd(t *testing.T) {
	for from := reading; from <= ended; from++ {
		r := newRestore(record{})
		r.state = from
		if changed := r.on(over); r.state != ended || changed == (from == ended) {
			t.Errorf("from %d: state %d, changed %v", from, r.state, changed)
		}
		for e := allLoaded; e <= over; e++ {
			if r.on(e) || r.state != ended {
				t.Errorf("event %d has changed what had ended", e)
			}
		}
	}
}

// TestStatesFilesLost: a sandbox is ended only once, even if there are two reasons to end it.
func TestStatesFilesLost(t *testing.T) {
	for from, kill := range map[state]bool{reading: true, loaded: true, failing: false, ending: false, ended: false} {
		r := newRestore(record{})
		r.state = from
		if got := r.on(filesLost); got != kill {
			t.Errorf("from %d: is to be ended %v, want %v", from, got, kill)
		}
		if r.on(filesLost) {
			t.Errorf("from %d: is to be ended twice", from)
		}
	}
}

// TestFailedWhileServed: if the shim reports a failed restore, the restore does not end while its sidecar is connected.
// It ends when the sidecar's connection ends.
func TestFailedWhileServed(t *testing.T) {
	a := newRig(t)
	a.make(t, "one", "old!", snapshot.WholePod)
	r := a.mustPrepare(t, "sandbox")
	src, err := a.Source(sidecar.Options{Request: r.Request, Token: r.Token})
	if err != nil {
		t.Fatal(err)
	}
	failure := errors.New("no such luck")
	a.Reported(r.Request, r.SandboxID, failure)
	select {
	case <-r.ended:
		t.Fatal("it has ended while the sandbox reads")
	default:
	}
	if !a.Readers.Using(saved) {
		t.Error("its snapshot was let go")
	}
	src.Ended(gofer.Lost, nil)
	<-r.ended
	if err := r.failure(); !errors.Is(err, failure) {
		t.Errorf("it failed with %v", err)
	}
	if _, err := a.Source(sidecar.Options{Request: r.Request, Token: r.Token}); err == nil {
		t.Error("it is served still")
	}
}

// TestRecordOfAnotherVersion: the agent reads a record of an earlier agent, which has no format. It leaves a newer
// agent's record alone, with its directory, until that agent is back.
func TestRecordOfAnotherVersion(t *testing.T) {
	a := newRig(t)
	a.make(t, "one", "old!", snapshot.RootfsOnly)
	r := a.mustPrepare(t, "sandbox")
	path := filepath.Join(a.Requests.Path(r.Request), recordFile)
	for _, c := range []struct {
		text string
		kind error
	}{
		{`{"request":"r","token":"t","key":{"namespace":"n","name":"s"},"sandboxID":"sandbox","pod":{}}`, nil},
		{`{"format":1,"request":"r","token":"t","key":{"namespace":"n","name":"s"},"new":["field"]}`, nil},
		{`{"format":2,"key":"something else"}`, errNewer},
	} {
		a.next(t)
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := a.registry.recall(r.Request); !errors.Is(err, c.kind) {
			t.Errorf("%s: %v", c.text, err)
		}
	}
	if wanted, known := a.Wanted(t.Context(), r.Request); !wanted || !known {
		t.Errorf("the directory of a newer agent's request: wanted %v, known %v", wanted, known)
	}
}

// FuzzRecord: whatever a record holds, reading it does no harm.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"request":"r","token":"t","key":{"namespace":"n","name":"s"},"sandboxID":"x","loaded":true}`))
	f.Add([]byte(`{"format":2}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		rs := recalling(newRequests(t))
		if err := os.Mkdir(rs.Requests.Path("r"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(rs.Requests.Path("r"), recordFile), b, 0o600); err != nil {
			t.Fatal(err)
		}
		if r, err := rs.registry.recall("r"); err == nil && r.Key.Validate() != nil {
			t.Errorf("recalled %+v", r.record)
		}
	})
}
