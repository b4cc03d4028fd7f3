// Package storagetest is the conformance suite of storage.Backend, and of a storage.Store over one.
// Each implementation runs it from a test of its own:
//
//	func TestConformance(t *testing.T) {
//		storagetest.Run(t, func(t *testing.T) storage.Backend { … })
//	}
package storagetest

import (
	"testing"

	"diapause.dev/storage"
)

// Open returns an empty backend, which is closed and removed when the test ends.
type Open func(t *testing.T) storage.Backend

// Run runs the whole suite. Each test has a backend of its own.
func Run(t *testing.T, open Open) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, storage.Backend)
	}{
		{"CreateRead", testCreateRead},
		{"CreateOnly", testCreateOnly},
		{"CreateAllOrNothing", testCreateAllOrNothing},
		{"CreateRace", testCreateRace},
		{"CreateBesideDelete", testCreateBesideDelete},
		{"Replace", testReplace},
		{"ReadBounds", testReadBounds},
		{"Absent", testAbsent},
		{"Names", testNames},
		{"List", testList},
		{"ListDelete", testListDelete},
		{"Cancelled", testCancelled},
		{"Store/Identity", testIdentity},
		{"Store/Probe", testProbe},
		{"Store/RoundTrip", testRoundTrip},
		{"Store/Lineage", testLineage},
		{"Store/SameKey", testSameKey},
		{"Store/Remove", testRemove},
		{"Store/RemoveShared", testRemoveShared},
		{"Store/Hold", testHold},
		{"Store/RemoveBeside", testRemoveBeside},
		{"Store/Sweep", testSweep},
		{"Store/Replicate", testReplicate},
		{"Store/Abort", testAbort},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, open(t)) })
	}
}
