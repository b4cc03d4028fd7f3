package restore

import (
	"errors"
	"testing"

	"diapause.dev/agent/errkind"
	"diapause.dev/api/snapshot"
)

// TestHostileSleepOfAnother: the snapshot of a sleep is restored into its own pod alone, unless the cluster has its
// successors inherit it, and it says itself that they may.
func TestHostileSleepOfAnother(t *testing.T) {
	for name, tc := range map[string]struct {
		purpose     snapshot.Purpose
		inheritable bool
		choice      Choice
		served      bool
	}{
		"of an earlier agent":           {"", false, Choice{}, true},
		"asked for":                     {snapshot.ForCheckpoint, false, Choice{}, true},
		"saved at its end":              {snapshot.ForTermination, false, Choice{}, true},
		"of a sleep":                    {snapshot.ForSleep, true, Choice{}, false},
		"its own wake":                  {snapshot.ForSleep, false, Choice{wakes: true}, true},
		"after a reboot":                {snapshot.ForSleep, false, Choice{own: true}, true},
		"inherited":                     {snapshot.ForSleep, true, Choice{Inherited: true}, true},
		"inherited by the cluster only": {snapshot.ForSleep, false, Choice{Inherited: true}, false},
	} {
		m := &snapshot.Meta{Key: saved, Purpose: tc.purpose, Inheritable: tc.inheritable}
		if err := serves(m, tc.choice); (err == nil) != tc.served || err != nil && !errors.Is(err, errkind.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
