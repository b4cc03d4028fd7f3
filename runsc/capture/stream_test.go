package capture

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
)

// TestStream writes a stream in pieces of many sizes and reads it in chunks.
func TestStream(t *testing.T) {
	for _, encrypt := range []bool{false, true} {
		t.Run(fmt.Sprint("encrypted ", encrypt), func(t *testing.T) {
			s, err := NewStream(t.TempDir(), encrypt)
			if err != nil {
				t.Fatal(err)
			}
			var want []byte
			var cuts []int64
			for i, n := range []int{1, 511, 300_000, 0, 12, 262_144, 70_000} {
				if i%2 == 1 {
					s.Cut()
					cuts = append(cuts, int64(len(want)))
				}
				p := bytes.Repeat([]byte{byte('a' + i)}, n)
				want = append(want, p...)
				if got, err := s.Write(p); got != n || err != nil {
					t.Fatal(got, err)
				}
				if n > 0 && p[0] != byte('a'+i) {
					t.Error("what was written has changed")
				}
			}
			if err := s.Seal(); err != nil {
				t.Fatal(err)
			}
			var got []byte
			var begins []int64
			for run := range s.Chunks(64 << 10) {
				p := make([]byte, run.Len)
				if err := s.Read(p, run.Off); err != nil {
					t.Fatal(err)
				}
				if run.Off != int64(len(got)) || run.Len > 64<<10 || run.Len == 0 {
					t.Fatalf("run %+v after %d bytes", run, len(got))
				}
				got, begins = append(got, p...), append(begins, run.Off)
			}
			if !bytes.Equal(got, want) || s.Size() != int64(len(want)) {
				t.Errorf("%d bytes, want %d", len(got), len(want))
			}
			for _, c := range cuts {
				if !slices.Contains(begins, c) {
					t.Errorf("no chunk begins at %d", c)
				}
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestStreamEmpty seals a stream that nothing was written to.
func TestStreamEmpty(t *testing.T) {
	s, err := NewStream(t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Seal(); err != nil {
		t.Fatal(err)
	}
	for run := range s.Chunks(10) {
		t.Errorf("there is %+v", run)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
