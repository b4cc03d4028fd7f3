package podnames

import (
	"sync"
	"sync/atomic"
	"testing"
)

// TestPodNames: if many requests want the same names at once, only one gets them.
func TestPodNames(t *testing.T) {
	var n Names
	var won atomic.Int32
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, ok := n.take([]string{"default/a", "default/b"}); ok {
				won.Add(1)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 {
		t.Errorf("%d requests have the name", won.Load())
	}
	if taken, ok := n.take([]string{"default/c", "default/b"}); ok || taken != "default/b" {
		t.Errorf("taken: %q, %v", taken, ok)
	}
	if _, ok := n.take([]string{"default/c"}); !ok {
		t.Error("a request that got nothing keeps a name")
	}
	n.release([]string{"default/a", "default/b"})
	if _, ok := n.take([]string{"default/a"}); !ok {
		t.Error("a name that was released is taken")
	}
}
