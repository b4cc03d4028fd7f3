package storage_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"diapause.dev/storage"
	"diapause.dev/storage/fault"
	"diapause.dev/storage/storagetest"
)

// kinds are the rows of the table of requests in docs/install/stores.md, by the operations of a backend.
var kinds = []struct {
	row string
	ops []fault.Op
}{
	{"put", []fault.Op{fault.Create, fault.Replace}},
	{"get", []fault.Op{fault.ReadAt}},
	{"head", []fault.Op{fault.Stat}},
	{"list", []fault.Op{fault.List}},
	{"delete", []fault.Op{fault.Delete}},
}

// TestRequests counts the requests to a store that each operation makes, and compares them with the table in
// docs/install/stores.md. It does so beside two numbers of other snapshots, so that the terms with n are tried.
func TestRequests(t *testing.T) {
	table := requestTable(t)
	for _, n := range []int{1, 4} {
		for operation, got := range countRequests(t, n) {
			for _, kind := range kinds {
				count := 0
				for _, op := range kind.ops {
					count += got[op]
				}
				cell, ok := table[kind.row][operation]
				if !ok {
					t.Fatalf("docs/install/stores.md does not say how many %s a %s needs", kind.row, operation)
				}
				if want := evaluate(t, cell, n); count != want {
					t.Errorf("%s beside %d snapshots: %d %s, the table says %q", operation, n, count, kind.row, cell)
				}
			}
		}
	}
}

// requests are how often each operation of a backend was called.
type requests map[fault.Op]int

// countRequests does each operation of the table in a store that has n other snapshots, none of them young.
func countRequests(t *testing.T, n int) map[string]requests {
	t.Helper()
	var mu sync.Mutex
	counted := requests{}
	near, dir := storagetest.NewDir(t), storagetest.NewDir(t)
	counting := func() *storage.Store { // which remembers nothing of what others did
		return faulty(t, dir, func(op fault.Op, _ string) fault.Fault {
			mu.Lock()
			defer mu.Unlock()
			counted[op]++
			return fault.Fault{}
		})
	}
	take := func(name string) storage.Key {
		k := storage.Key{Namespace: "ns", Name: name}
		storagetest.Write(t, near, k, nil, tinyImage())
		return k
	}
	for i := range n {
		if err := storage.Replicate(t.Context(), dir, near, take(fmt.Sprint("other-", i)), nil); err != nil {
			t.Fatal(err)
		}
	}
	one, all := take("one"), map[string]requests{}
	for _, operation := range []struct {
		name string
		do   func(context.Context, *storage.Store) error
	}{
		{"checkpoint", func(ctx context.Context, s *storage.Store) error {
			return storage.Replicate(ctx, s, near, one, nil)
		}},
		{"restore elsewhere", func(ctx context.Context, s *storage.Store) error { return restoreOnce(ctx, s, one) }},
		{"removal", func(ctx context.Context, s *storage.Store) error { return s.Remove(ctx, one) }},
		{"garbage collection", func(ctx context.Context, s *storage.Store) error {
			_, err := s.Sweep(ctx, storage.SweepOptions{Namespace: one.Namespace})
			return err
		}},
	} {
		s := counting()
		age(t, dir)
		counted = requests{}
		if err := operation.do(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", operation.name, err)
		}
		all[operation.name] = counted
	}
	return all
}

// restoreOnce reads a snapshot as a restore does: it holds the snapshot while it reads all of the memory.
func restoreOnce(ctx context.Context, s *storage.Store, key storage.Key) error {
	m, err := s.Manifest(ctx, key)
	if err != nil {
		return err
	}
	h, err := s.Hold(ctx, m)
	if err != nil {
		return err
	}
	if _, err := s.EncodedWorkingSet(ctx, key); !errors.Is(err, storage.ErrNotFound) { // nobody has written it yet
		return err
	}
	r := storage.NewReader(m, s)
	defer r.Close() // nothing is written
	for _, f := range m.Files {
		if err := r.ReadAt(ctx, f.Name, 0, [][]byte{make([]byte, f.Size)}); err != nil {
			return err
		}
	}
	return h.Release(ctx)
}

// age makes all objects of a store in a directory an hour old.
func age(t *testing.T, s *storage.Store) {
	t.Helper()
	then := time.Now().Add(-time.Hour)
	root := strings.TrimPrefix(s.Backend().Location(), "dir:")
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chtimes(path, then, then)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// requestTable returns the cells of the table by kind and operation.
func requestTable(t *testing.T) map[string]map[string]string {
	t.Helper()
	page, err := os.ReadFile("../docs/install/stores.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "\n## What an operation costs\n")
	var head []string
	table := map[string]map[string]string{}
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		switch {
		case len(cells) == 1 && head != nil:
			return table
		case len(cells) == 1:
			continue
		case head == nil:
			head = cells
		}
		row := map[string]string{}
		for i := range min(len(cells), len(head)) {
			row[strings.TrimSpace(head[i])] = strings.TrimSpace(cells[i])
		}
		table[strings.TrimSpace(cells[0])] = row
	}
	return table
}

// evaluate computes a cell, a sum of numbers and of multiples of n, as in "1 + 2n".
func evaluate(t *testing.T, cell string, n int) (sum int) {
	t.Helper()
	for term := range strings.SplitSeq(cell, "+") {
		number, isMultiple := strings.CutSuffix(strings.TrimSpace(term), "n")
		if isMultiple && number == "" {
			number = "1"
		}
		value, err := strconv.Atoi(number)
		if err != nil {
			t.Fatalf("docs/install/stores.md: %q is no count of requests: %v", cell, err)
		}
		if isMultiple {
			value *= n
		}
		sum += value
	}
	return sum
}
