package fault_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"diapause.dev/storage"
	"diapause.dev/storage/dir"
	"diapause.dev/storage/fault"
	"diapause.dev/storage/storagetest"
)

func open(t *testing.T) storage.Backend {
	t.Helper()
	b, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// TestConformance: without faults the wrapper is a backend like any other.
func TestConformance(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storage.Backend {
		return fault.New(open(t), func(fault.Op, string) fault.Fault { return fault.Fault{} })
	})
}

func TestFaults(t *testing.T) {
	broke := errors.New("broke")
	for _, test := range []struct {
		name   string
		fault  fault.Fault
		done   bool // whether the operation was done, whatever it returned
		create error
	}{
		{"none", fault.Fault{}, true, nil},
		{"before", fault.Fault{Before: broke}, false, broke},
		{"during", fault.Fault{During: broke}, false, broke},
		{"after", fault.Fault{After: broke}, true, broke},
	} {
		under := open(t)
		b := fault.New(under, func(op fault.Op, _ string) fault.Fault { return test.fault })
		if err := b.Create(t.Context(), "o", strings.NewReader("content"), 7); !errors.Is(err, test.create) {
			t.Errorf("%s: create: %v", test.name, err)
		}
		if _, err := under.Stat(t.Context(), "o"); (err == nil) != test.done {
			t.Errorf("%s: afterwards: %v", test.name, err)
		}
	}
}

func TestReads(t *testing.T) {
	under, data := open(t), []byte("content")
	if err := under.Create(t.Context(), "o", bytes.NewReader(data), 7); err != nil {
		t.Fatal(err)
	}
	var now fault.Fault
	b := fault.New(under, func(fault.Op, string) fault.Fault { return now })
	got := make([]byte, 7)
	now = fault.Fault{Short: true}
	if err := b.ReadAt(t.Context(), "o", got, 0); !errors.Is(err, storage.ErrTruncated) {
		t.Errorf("short: %v", err)
	}
	now = fault.Fault{Flip: true}
	if err := b.ReadAt(t.Context(), "o", got, 0); err != nil || slices.Equal(got, data) {
		t.Errorf("flip: %q, %v", got, err)
	}
}
