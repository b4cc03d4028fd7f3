package sweep

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// TestWindow: every snapshot is picked exactly once, piece by piece and in order, whatever the order of the listing.
func TestWindow(t *testing.T) {
	for n := range 12 {
		var all []snapshot.Key
		for i := range n {
			all = append(all, snapshot.Key{Namespace: fmt.Sprint("n", i/3), Name: fmt.Sprint("s", i%3)})
		}
		var got []snapshot.Key
		var last snapshot.Key
		for range n + 2 {
			w := window{after: last, most: 3}
			for _, i := range rand.Perm(n) {
				w.add(storage.Listed{Key: all[i]})
			}
			var picked []storage.Listed
			picked, last = w.result()
			for _, e := range picked {
				got = append(got, e.Key)
			}
			if last == (snapshot.Key{}) {
				break
			}
		}
		if !slices.Equal(got, all) {
			t.Errorf("of %v these were picked: %v", all, got)
		}
	}
}
