package shim

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestRosterEnding: a sandbox is not saved from the signal that tells one of its containers to end until that container
// is deleted, whatever signals come after that.
func TestRosterEnding(t *testing.T) {
	var k roster
	tell := func(s unix.Signal, first, known bool) {
		t.Helper()
		if isFirst, isKnown := k.signalled("a", s); isFirst != first || isKnown != known {
			t.Errorf("%v: first %v, known %v", s, isFirst, isKnown)
		}
	}
	ending := func(want string) {
		t.Helper()
		if id := k.ending(); id != want {
			t.Errorf("%q ends, want %q", id, want)
		}
	}
	tell(unix.SIGTERM, false, false)
	k.add("a", "app")
	tell(unix.SIGHUP, false, true)
	tell(0, false, true)
	ending("")
	tell(unix.SIGTERM, true, true)
	tell(unix.SIGKILL, false, true)
	ending("a")
	k.forget("a")
	tell(unix.SIGTERM, false, false)
	ending("")
}
