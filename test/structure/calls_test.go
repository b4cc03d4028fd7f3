package structure

import (
	"maps"
	"testing"

	"diapause.dev/test/structure/calls"
)

// Of the arrows between the files of a package at most maxUp percent go back up, once the files are in the order that
// has the fewest. Packages with fewer than minArrows arrows are not looked at.
const (
	maxUp     = 10
	minArrows = 5
)

// callsUp are packages with a larger share of arrows back up, and how large it may be, in percent.
var callsUp = map[string]int{
	"agent": 25,
}

// TestCalls: the files of a package call each other in one direction, see package calls. `go run ./test/tools/calls
// DIR` prints the arrows that go back up, and which moves of functions would spare some.
func TestCalls(t *testing.T) {
	packages, err := calls.Load(root, "./api/...", "./storage/...", "./runsc/...", "./cri/...", "./agent/...", "./cmd/...")
	if err != nil {
		t.Fatal(err)
	}
	limits := maps.Clone(callsUp)
	for _, p := range packages {
		if all, up := p.Arrows(); all >= minArrows {
			share := (100*len(up) + all - 1) / all // rounded up
			checkSize(t, "package "+p.Dir+" (percent of arrows back up)", share, maxUp, limits, p.Dir)
		}
	}
	checkUsed(t, limits)
}
