package past

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"diapause.dev/api/snapshot"
)

// TestNote: a pod has run once a sandbox started cold or was restored completely. A restore that fails changes nothing,
// and neither does one that is undone.
func TestNote(t *testing.T) {
	var n Note
	n.Try("a")
	if n.Sandbox != "" || !n.Knows("a") || n.Knows("b") {
		t.Errorf("after a restore that has begun: %+v", n)
	}
	if n.Complete("b") || n.Undo("b") {
		t.Errorf("what was not begun: %+v", n)
	}
	if !n.Complete("a") || n.Sandbox != "a" {
		t.Errorf("after a restore: %+v", n)
	}
	n.Try("b")
	if n.Sandbox != "a" || !n.Complete("b") || n.Sandbox != "b" {
		t.Errorf("after another restore: %+v", n)
	}
	if !n.Undo("b") || n.Sandbox != "a" || !n.Knows("b") || n.Undo("b") || n.Complete("b") {
		t.Errorf("after it was undone: %+v", n)
	}
	n.Try("d")
	if !n.Undo("d") || n.Complete("d") || n.Sandbox != "a" {
		t.Errorf("after one that was undone before it was complete: %+v", n)
	}
	n.Start("c")
	if n.Sandbox != "c" || n.Knows("a") || n.Undo("c") {
		t.Errorf("after a cold start: %+v", n)
	}
	n.Try("c") // its shim has let it start without an answer
	if len(n.Tried) != 0 {
		t.Errorf("after a late answer: %+v", n)
	}
	for i := range 3 * maxTried {
		n.Try(fmt.Sprint("s", i))
		n.Try(fmt.Sprint("s", i))
	}
	if len(n.Tried) != maxTried || !n.Knows(fmt.Sprint("s", 3*maxTried-1)) || n.Sandbox != "c" {
		t.Errorf("after many restores: %+v", n)
	}
}

// TestReadNote: a note is read as it was written, and nothing else is.
func TestReadNote(t *testing.T) {
	dir := t.TempDir()
	if _, err := Read(dir, "u"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a note: %v", err)
	}
	n := Note{Pod: snapshot.PodRef{Namespace: "n", Name: "p", UID: "u"}}
	for _, durably := range []bool{false, true} {
		n.Start(fmt.Sprint("durably ", durably))
		if err := n.Write(dir, durably); err != nil {
			t.Fatal(err)
		}
		got, err := Read(dir, "u")
		if err != nil || got.Sandbox != n.Sandbox || got.Pod != n.Pod {
			t.Errorf("%+v, %v, want %+v", got, err, n)
		}
	}
	if err := n.Write(dir+"/absent", true); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "n/p") {
		t.Errorf("without a directory: %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("left: %v, %v", entries, err)
	}
	for content, why := range map[string]string{
		`{"format":2,"pod":{"uid":"u"}}`: "newer", `{"format":1,"pod":{"uid":"v"}}`: `of pod "v"`, `{"format":`: "JSON",
		strings.Repeat(" ", maxNote) + "{}": "JSON", "": "JSON",
	} {
		if err := os.WriteFile(Path(dir, "u"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(dir, "u"); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%.40q: %v, want %q", content, err, why)
		}
	}
}
