package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"diapause.dev/test/tools"
)

// rounds is how often what is short is measured; the best counts. Beside a loop on the cores that is its
// bound, and takes turns with it, the round counts whose ratio is in the middle: both were measured on a
// machine in the same state then.
const rounds = 11

// manyRounds is how often that is measured which the disk has a part in, and its bound has none.
const manyRounds = 31

// bench is one run.
type bench struct {
	*data
	results
	root    string
	scratch string // for stores, on the disk of the repository
}

// scenarios are what is measured, in order.
var scenarios = []struct {
	name string
	run  func(*bench, context.Context) error
}{
	{"replicate/heap", (*bench).replicateHeap},
	{"replicate/wire100", (*bench).replicateWire},
	{"restore/heap", (*bench).restoreHeap},
	{"restore/wire100-rtt20", (*bench).restoreWire},
	{"servers", (*bench).servers},
	{"dedup", (*bench).dedup},
	{"fragmentation/200", (*bench).fragmentation},
	{"cache/8way", (*bench).sharedCache},
	{"codec/adaptive", (*bench).codecs},
	{"peer/zstd-stream", (*bench).zstdStream},
	{"peer/kopia", (*bench).kopia},
}

func run(ctx context.Context, only, scratch string) (err error) {
	b := &bench{}
	if b.root, err = moduleRoot(ctx); err != nil {
		return err
	}
	if b.data, err = prepare(ctx, b.root); err != nil {
		return err
	}
	if scratch == "" {
		scratch = filepath.Join(b.root, ".cache", "bench-store")
	}
	if b.scratch, err = os.MkdirTemp(scratch, "diapause-bench-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.scratch)) }()
	for _, s := range scenarios {
		if !strings.Contains(s.name, only) {
			continue
		}
		say("%s", s.name)
		settle()
		if err := s.run(b, ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	if err := b.print(os.Stdout); err != nil || only != "" {
		return err
	}
	return b.write(filepath.Join(b.root, "bench", "out", "store.json"))
}

// settle gives back what earlier measurements have left in pools, which a collection empties only
// when nothing has been taken out of them since the one before.
func settle() {
	for range 3 {
		debug.FreeOSMemory()
	}
}

func moduleRoot(ctx context.Context) (string, error) {
	bin, err := tools.Build(ctx)
	return bin.Root, err
}

// rate returns how many MB of raw bytes were moved per second.
func (b *bench) rate(im *image, took time.Duration) float64 {
	return float64(len(im.raw)) / 1e6 / took.Seconds()
}

// middle returns the round whose ratio is the median.
func middle[R any](rounds []R, ratio func(R) float64) R {
	sorted := slices.SortedFunc(slices.Values(rounds), func(a, b R) int { return cmp.Compare(ratio(a), ratio(b)) })
	return sorted[len(sorted)/2]
}

func ratio(took, bound time.Duration) float64 { return float64(took) / float64(bound) }

// best keeps the shortest of several times.
type best struct{ took time.Duration }

func (b *best) add(took time.Duration) {
	if b.took == 0 || took < b.took {
		b.took = took
	}
}
