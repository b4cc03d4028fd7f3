package use

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestSessions: the file's time advances while a session is open, and no longer when the last one has ended.
func TestSessions(t *testing.T) {
	dir := Dir(filepath.Join(t.TempDir(), "agent.sock"))
	s := Sessions{File: filepath.Join(dir, "sandbox")}
	first, second := s.Begin(), s.Begin() // before there is an agent
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	later := func(than time.Time) (at time.Time) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			if info, err := os.Stat(s.File); err == nil && info.ModTime().After(than) {
				return info.ModTime()
			}
		}
		t.Fatal("the file is not touched")
		return at
	}
	at := later(later(time.Time{}))
	first()
	first() // counts once
	later(later(at))
	over := time.Now()
	second()
	later(over)
	if s.open != 0 {
		t.Errorf("%d are open", s.open)
	}
	new(Sessions).Begin()() // nobody wants to know
	for name, never := range map[string]bool{"sandbox": false, "another": true} {
		if at, err := Session(dir, name); err != nil || at.IsZero() != never {
			t.Errorf("%s: %v, %v", name, at, err)
		}
	}
}
