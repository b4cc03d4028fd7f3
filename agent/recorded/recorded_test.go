package recorded

import (
	"errors"
	"strings"
	"testing"

	"diapause.dev/agent/errkind"
	"diapause.dev/api/snapshot"
)

// TestHostileRecord: what a snapshot says about containers fits into an answer to a shim.
func TestHostileRecord(t *testing.T) {
	sound := snapshot.Container{Name: "app", Terminal: &snapshot.Terminal{Characters: make([]byte, 19)}}
	for name, p := range map[string]snapshot.Pod{
		"many":      {Containers: make([]snapshot.Container, maxContainers+1)},
		"many over": {Containers: []snapshot.Container{sound}, Ended: make([]snapshot.EndedContainer, maxContainers)},
		"a path":    {Containers: []snapshot.Container{sound, {Name: "../x"}}},
		"long":      {Ended: []snapshot.EndedContainer{{Container: snapshot.Container{Name: strings.Repeat("x", 10_000)}}}},
		"terminal": {Containers: []snapshot.Container{
			{Name: "app", Terminal: &snapshot.Terminal{Characters: make([]byte, 10_000)}},
		}},
	} {
		if err := Check(p); !errors.Is(err, errkind.ErrInvalid) || len(err.Error()) > 300 {
			t.Errorf("%s: %.400v", name, err)
		}
	}
	if err := Check(snapshot.Pod{Containers: []snapshot.Container{sound}}); err != nil {
		t.Error(err)
	}
}
