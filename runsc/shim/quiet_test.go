package shim

import (
	"context"
	"testing"
)

// TestQuietExits takes the one exit that is expected of a container, and no other one.
func TestQuietExits(t *testing.T) {
	var q quietExits
	if q.take("a") {
		t.Error("an exit that nobody expects is taken")
	}
	q.expect("a")
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if err := q.settled(done, "a"); err == nil {
		t.Error("settled before the exit")
	}
	if q.take("b") {
		t.Error("the exit of another container is taken")
	}
	if !q.take("a") || q.take("a") {
		t.Error("want the first exit taken, and not the second")
	}
	if err := q.settled(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	q.expect("a")
	q.forget("a")
	if q.take("a") {
		t.Error("an exit is taken that is no longer expected")
	}
}
