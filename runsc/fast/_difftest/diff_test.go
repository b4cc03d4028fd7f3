// Package difftest compares the two implementations of package state.
package difftest

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"regexp"
	"slices"
	"testing"

	fast "gvisor.dev/gvisor/pkg/difftest/fast/graph"
	stock "gvisor.dev/gvisor/pkg/difftest/stock/graph"
)

var graphs = flag.Int("graphs", 2000, "number of random graphs")

// randomData returns the bytes of a random graph.
func randomData(seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 14))
	data := make([]byte, r.IntN(900))
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	return data
}

func TestSameBytes(t *testing.T) {
	var size, failed int
	reasons := map[string]int{}
	for seed := range uint64(*graphs) {
		a, err := check(t, randomData(seed))
		if err != nil {
			failed++
			reasons[reason(err)]++
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
		size += len(a)
	}
	t.Logf("%d graphs, %d bytes, %d that cannot be saved or loaded: %v", *graphs, size, failed, reasons)
	if failed*2 > *graphs {
		t.Errorf("%d of %d graphs cannot be saved or loaded", failed, *graphs)
	}
}

func FuzzSameBytes(f *testing.F) {
	for seed := range uint64(40) {
		f.Add(randomData(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) { check(t, data) })
}

// check compares how one graph is saved and loaded. It returns an error if it is neither.
func check(t *testing.T, data []byte) ([]byte, error) {
	a, errA := stock.Save(stock.Make(data))
	b, errB := fast.Save(fast.Make(data))
	if (errA == nil) != (errB == nil) {
		t.Errorf("stock: %v\nfast: %v", errA, errB)
	}
	if errA != nil {
		return nil, errA
	}
	if !bytes.Equal(a, b) {
		t.Errorf("stock and fast have written different bytes, %d and %d, from %d", len(a), len(b), differ(a, b))
		return a, nil
	}
	return a, checkLoad(t, a)
}

func differ(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// checkLoad compares what is loaded from the same bytes.
func checkLoad(t *testing.T, data []byte) error {
	a, callsA, restA, errA := stock.Load(data)
	b, callsB, restB, errB := fast.Load(data)
	if (errA == nil) != (errB == nil) {
		t.Errorf("load by stock: %v\nby fast: %v", errA, errB)
	}
	if errA != nil {
		return errA
	}
	if restA != 0 || restB != 0 {
		t.Errorf("stock leaves %d bytes, fast %d", restA, restB)
	}
	if !slices.Equal(callsA, callsB) {
		t.Errorf("afterLoad: stock %q, fast %q", callsA, callsB)
	}
	againA, errA := stock.Save(a)
	againB, errB := fast.Save(b)
	if errA != nil || errB != nil {
		t.Errorf("save again by stock: %v, by fast: %v", errA, errB)
	}
	if !bytes.Equal(againA, againB) {
		t.Errorf("saved again, stock and fast have loaded different graphs: %d and %d bytes", len(againA), len(againB))
	}
	return nil
}

var details = regexp.MustCompile(`(?s)(:\ngoroutine|for object|0x|@).*|\d+`)

// reason returns what a kind of error is called: its message without stacks, addresses and numbers.
func reason(err error) string { return details.ReplaceAllString(err.Error(), "") }
