package shim

import "testing"

// TestResizes: if many sizes come while one is being told, only the last one is told next.
func TestResizes(t *testing.T) {
	var s resizes
	if !s.begin("a") {
		t.Fatal("the first is not told")
	}
	for range 5 {
		if s.begin("a") {
			t.Error("two tell at the same time")
		}
	}
	if !s.begin("b") {
		t.Error("another container is not told")
	}
	if !s.again("a") || s.again("a") {
		t.Error("the last is not told, or more than that")
	}
	if !s.begin("a") {
		t.Error("the next is not told")
	}
}
