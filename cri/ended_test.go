package cri

import (
	"fmt"
	"testing"

	"diapause.dev/cri/plan"
)

// TestLastEnded: for each name the last container counts, if it has ended. A record can hold all of them.
func TestLastEnded(t *testing.T) {
	app := Container{ID: "3", Name: "app", State: StateRunning}
	all := []Container{
		{ID: "1", Name: "init", State: StateExited},
		{ID: "2", Name: "app", State: StateExited},
		app,
		{ID: "4", Name: "job", State: StateExited},
		{ID: "5", Name: "job", State: StateExited},
		{ID: "6", Name: "late", State: StateCreated},
	}
	var got string
	for _, x := range lastEnded(all, []Container{app}) {
		got += x.ID
	}
	if got != "15" {
		t.Errorf("ended: %q, want 1 and 5", got)
	}
	var many []Container
	for i := range 2 * plan.MaxContainers {
		many = append(many, Container{ID: fmt.Sprint(i), Name: fmt.Sprint("c", i), State: StateExited})
	}
	if kept := lastEnded(many, []Container{app}); len(kept) != plan.MaxContainers-1 ||
		kept[len(kept)-1].ID != many[len(many)-1].ID {
		t.Errorf("%d of %d are kept", len(kept), len(many))
	}
}
