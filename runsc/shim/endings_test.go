package shim

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestEndings(t *testing.T) {
	var e endings
	e.told("a", unix.SIGHUP)
	e.told("a", 0)
	if id := e.first(); id != "" {
		t.Errorf("%s ends", id)
	}
	e.told("a", unix.SIGTERM)
	if id := e.first(); id != "a" {
		t.Errorf("%q ends, want a", id)
	}
	e.forget("a")
	if id := e.first(); id != "" {
		t.Errorf("%s ends, it was deleted", id)
	}
}
