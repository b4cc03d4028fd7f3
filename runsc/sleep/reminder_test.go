package sleep_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/sleep"
)

// TestReadReminder: what was written is read. A reminder of a newer agent, and what is none, is an error.
func TestReadReminder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "asleep", "a.json")
	if _, err := sleep.ReadReminder(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("none: %v", err)
	}
	r := sleep.Reminder{Format: sleep.ReminderFormat, Snapshot: snapshot.Key{Namespace: "ns", Name: "s"}, Boot: "b"}
	for range 2 {
		if err := r.Write(path); err != nil {
			t.Fatal(err)
		}
		if got, err := sleep.ReadReminder(path); err != nil || got != r {
			t.Errorf("%+v, %v, want %+v", got, err, r)
		}
		r.Unwoken = true
	}
	r.Format++
	if err := r.Write(path); err != nil {
		t.Fatal(err)
	}
	if _, err := sleep.ReadReminder(path); !errors.Is(err, sleep.ErrNewer) {
		t.Errorf("of a newer agent: %v", err)
	}
	for _, text := range []string{"", "{", `{"format": 1, "snapshot": {"namespace": "..", "name": "s"}}`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := sleep.ReadReminder(path); err == nil {
			t.Errorf("%q is read", text)
		}
	}
}
