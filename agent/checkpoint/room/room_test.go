package room

import (
	"errors"
	"strings"
	"testing"

	"diapause.dev/agent/budget"
	"diapause.dev/agent/errkind"
	"diapause.dev/api/snapshot"
)

// TestPromises: what the disk and the backlog have promised to a checkpoint counts until it leaves. The refusal of a
// copy says that the pod sleeps on.
func TestPromises(t *testing.T) {
	b := Budgets{
		Disk:        budget.NewDisk(t.TempDir(), 0),
		Replication: budget.NewReplication(0, 1, func() []budget.Waiting { return nil }),
	}
	first, second := New(b, "ns", "ns/first", snapshot.WholePod), New(b, "ns", "ns/second", snapshot.WholePod)
	if err := first.TakeCopy(); err != nil {
		t.Fatal(err)
	}
	err := second.TakeCopy()
	const want = "pod ns/second was not saved, and sleeps on: "
	if !errors.Is(err, errkind.ErrBudget) || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("while the other one holds all of it: %v", err)
	}
	second.Leave()
	first.Leave()
	if err := second.TakeCopy(); err != nil {
		t.Errorf("once the other one has left: %v", err)
	}
	second.Leave()
}
