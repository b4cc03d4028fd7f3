package snapshots

import (
	"testing"

	"diapause.dev/api/snapshot"
)

func TestLineage(t *testing.T) {
	l := NewLineage()
	whole, files := snapshot.Key{Namespace: "n", Name: "whole"}, snapshot.Key{Namespace: "n", Name: "files"}
	l.Set("a", snapshot.WholePod, whole)
	l.Set("a", snapshot.RootfsOnly, files)
	l.Set("b", snapshot.WholePod, whole)
	if k, ok := l.Parent("a", snapshot.WholePod); !ok || k != whole {
		t.Errorf("of a pod: %v, %v", k, ok)
	}
	if k, ok := l.Parent("a", snapshot.RootfsOnly); !ok || k != files {
		t.Errorf("of files: %v, %v", k, ok)
	}
	if _, ok := l.Parent("b", snapshot.RootfsOnly); ok {
		t.Error("files descend from a pod")
	}
	l.Keep(map[string]bool{"b": true})
	if _, ok := l.Parent("a", snapshot.RootfsOnly); ok {
		t.Error("a sandbox that is gone is remembered")
	}
	if _, ok := l.Parent("b", snapshot.WholePod); !ok {
		t.Error("one that lives is forgotten")
	}
}

// TestBell: a bell that is rung several times wakes once. Ringing it never blocks.
func TestBell(t *testing.T) {
	b := NewBell()
	select {
	case <-b:
		t.Error("it rings by itself")
	default:
	}
	for range 3 {
		b.Ring()
	}
	<-b
	select {
	case <-b:
		t.Error("it rings once more")
	default:
	}
}
