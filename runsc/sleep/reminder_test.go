package sleep_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/sleep"
)

// TestMoveReminders: reminders are moved to where shims look for them. One that is there stays, and one that cannot be
// read stays where it is and does not stop the others.
func TestMoveReminders(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "asleep"), filepath.Join(t.TempDir(), "asleep")
	write := func(dir, pod, boot string) {
		t.Helper()
		k := snapshot.Key{Namespace: "ns", Name: pod}
		r := sleep.Reminder{Format: sleep.ReminderFormat, Snapshot: k, Boot: boot}
		if err := r.Write(sleep.ReminderPath(dir, pod)); err != nil {
			t.Fatal(err)
		}
	}
	if err := sleep.MoveReminders(from, to); err != nil {
		t.Errorf("without a directory: %v", err)
	}
	write(from, "moved", "former")
	write(from, "both", "former")
	write(to, "both", "latter")
	newer := sleep.ReminderPath(from, "newer")
	if err := os.WriteFile(newer, []byte(`{"format": 99}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := sleep.MoveReminders(from, to); !errors.Is(err, sleep.ErrNewer) {
			t.Errorf("with a newer one: %v", err)
		}
	}
	for pod, boot := range map[string]string{"moved": "former", "both": "latter"} {
		r, err := sleep.ReadReminder(sleep.ReminderPath(to, pod))
		if err != nil || r.Boot != boot || r.Snapshot.Name != pod {
			t.Errorf("%s: %+v, %v", pod, r, err)
		}
	}
	if left, err := filepath.Glob(from + "/*"); err != nil || len(left) != 1 || left[0] != newer {
		t.Errorf("left: %q, %v", left, err)
	}
	if err := sleep.MoveReminders(to, to); err != nil {
		t.Error(err)
	}
	if all, err := filepath.Glob(to + "/*.json"); err != nil || len(all) != 2 {
		t.Errorf("moved to the same directory: %q, %v", all, err)
	}
}
