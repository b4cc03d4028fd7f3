package stateipc

import (
	"encoding/binary"
	"io"
	"math"
	"slices"
	"testing"

	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/state/stateio"
)

// content is a file with some bytes.
type content struct {
	heldFile
	data []byte
}

func (f *content) AddRead(id int, off int64, _ stateio.DestinationFile, _ memmap.FileRange, mapped []byte) {
	n := copy(mapped, f.data[min(off, int64(len(f.data))):])
	c := stateio.Completion{ID: id, N: uint64(n)}
	if n < len(mapped) {
		c.Err = io.EOF
	}
	f.done <- c
}

// withWorkingSet are files with a working set.
type withWorkingSet struct {
	*heldFiles
	data []byte
}

func (s *withWorkingSet) OpenRead(path string) (stateio.AsyncReader, error) {
	if path != workingSetFile {
		return s.heldFiles.OpenRead(path)
	}
	return &content{heldFile{done: make(chan stateio.Completion, parallel)}, s.data}, nil
}

// records encodes pairs of an offset and a length.
func records(numbers ...uint64) (data []byte) {
	for _, n := range numbers {
		data = binary.LittleEndian.AppendUint64(data, n)
	}
	return data
}

// workingSet returns what a client reads of a working set.
func workingSet(t *testing.T, data []byte) []memmap.FileRange {
	t.Helper()
	c, _ := serve(t, &withWorkingSet{&heldFiles{most: 2}, data})
	r, err := c.OpenReadLanes("pages")
	if err != nil {
		t.Fatal(err)
	}
	l := r.(*Lanes)
	set := l.WorkingSet()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	return set
}

func TestWorkingSet(t *testing.T) {
	want := []memmap.FileRange{{8192, 12288}, {0, 1}, {5, 20000}}
	if got := workingSet(t, records(8192, 4096, 0, 1, 5, 19995)); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := workingSet(t, nil); got != nil {
		t.Errorf("an empty file is %v", got)
	}
}

// TestWorkingSetUnread: a working set that nobody reads is closed with the lanes.
func TestWorkingSetUnread(t *testing.T) {
	c, _ := serve(t, &withWorkingSet{&heldFiles{most: 2}, records(0, 1)})
	r, err := c.OpenReadLanes("pages")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// TestHostileWorkingSet: what is no range is left out, and the number of ranges is bounded.
func TestHostileWorkingSet(t *testing.T) {
	good := memmap.FileRange{4096, 8192}
	data := records(0, 0, math.MaxUint64, 1, 1, math.MaxUint64, 4096, 4096)
	if got := workingSet(t, append(data, 1, 2, 3)); !slices.Equal(got, []memmap.FileRange{good}) {
		t.Errorf("got %v, want %v", got, good)
	}
	many := slices.Repeat(records(4096, 4096), maxWorkingSet+1000)
	if got := workingSet(t, many); len(got) != maxWorkingSet {
		t.Errorf("%d ranges, want %d", len(got), maxWorkingSet)
	}
}

// TestReminder: a reminder is answered while a read ahead of need is held, and goes to a file of its own.
func TestReminder(t *testing.T) {
	l, files, read, _ := twoLanes(t)
	read(3, false)
	l.Use(true)
	l.AddReminder(1, hostarch.PageSize)
	go files.all[1].complete()
	wants(t, l, 1)
	go files.all[0].complete()
	wants(t, l, 3)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if a, b := files.all[0].registered, files.all[1].registered; a != 1 || b != 2 {
		t.Errorf("%d files are registered in the first lane, and %d in the second, want 1 and 2", a, b)
	}
}
