package shim

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestEndings(t *testing.T) {
	var e endings
	e.signalled("a", unix.SIGHUP)
	e.signalled("a", 0)
	if id := e.first(); id != "" {
		t.Errorf("%s ends", id)
	}
	e.signalled("a", unix.SIGTERM)
	if id := e.first(); id != "a" {
		t.Errorf("%q ends, want a", id)
	}
	e.forget("a")
	if id := e.first(); id != "" {
		t.Errorf("%s ends, it was deleted", id)
	}
}
