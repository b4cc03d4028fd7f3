package fidelity

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestStream loses, repeats, swaps, cuts and changes messages; each must be found.
func TestStream(t *testing.T) {
	tests := []struct {
		name  string
		order []uint64
		bend  func([]byte) []byte
		whole bool
	}{
		{"whole", []uint64{1, 2, 3}, nil, true},
		{"lost", []uint64{1, 3}, nil, false},
		{"lost first", []uint64{2}, nil, false},
		{"repeated", []uint64{1, 2, 2}, nil, false},
		{"swapped", []uint64{2, 1}, nil, false},
		{"one bit", []uint64{1, 2}, func(b []byte) []byte { b[len(b)-1] ^= 1; return b }, false},
		{"cut", []uint64{1, 2}, func(b []byte) []byte { return b[:len(b)-1] }, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var b []byte
			for _, seq := range tt.order {
				b = append(b, message(seq)...)
			}
			if tt.bend != nil {
				b = tt.bend(b)
			}
			seen := 0
			err := receive(bytes.NewReader(b), func([]byte) error { seen++; return nil })
			if whole := errors.Is(err, io.EOF) && seen == len(tt.order); whole != tt.whole {
				t.Errorf("%d of %d seen, then %v", seen, len(tt.order), err)
			}
			file := filepath.Join(t.TempDir(), "journal")
			if err := os.WriteFile(file, b, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := checkJournal(bytes.NewReader(b), uint64(len(tt.order))); (err == nil) != tt.whole {
				t.Errorf("as a journal: %v", err)
			}
		})
	}
}

func TestJournalWithMoreBehind(t *testing.T) {
	if err := checkJournal(bytes.NewReader(append(message(1), 0)), 1); err == nil {
		t.Error("a byte behind the last message is not seen")
	}
}

// TestBaton changes the number of passes behind the players' backs.
func TestBaton(t *testing.T) {
	for name, change := range map[string]int{"lost": -1, "repeated": 1, "other instant": 1000} {
		t.Run(name, func(t *testing.T) {
			b := new(baton)
			rounds := 0
			p := player{b: b, me: 0, all: 1, private: futexPrivate, passed: func() {
				if rounds++; rounds == 5 {
					b.seq += uint64(change)
				}
			}}
			if err := p.play(); err == nil || errors.Is(err, errGone) || rounds != 5 {
				t.Errorf("after %d rounds: %v", rounds, err)
			}
		})
	}
}

func TestBatonEnds(t *testing.T) {
	b := &baton{turn: 1}
	p := player{b: b, me: 0, all: 2, private: futexPrivate, passed: func() {}}
	done := make(chan error, 1)
	go func() { done <- p.play() }()
	time.Sleep(10 * time.Millisecond)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, errGone) {
		t.Errorf("got %v, want %v", err, errGone)
	}
}

// TestVersions wants every file that is not of this very version to be found.
func TestVersions(t *testing.T) {
	write := func(b []byte) func(string) error {
		return func(path string) error { return os.WriteFile(path, b, 0o600) }
	}
	torn := append(bytes.Clone(contents(1, 3)[:fileSize/2]), contents(1, 2)[fileSize/2:]...)
	tests := []struct {
		name  string
		write func(path string) error
		ok    bool
	}{
		{"this one", func(string) error { return nil }, true},
		{"older", write(contents(1, 2)), false},
		{"newer", write(contents(1, 4)), false},
		{"torn", write(torn), false},
		{"another file", write(contents(2, 3)), false},
		{"shorter", write(contents(1, 3)[:fileSize-1]), false},
		{"longer", write(append(contents(1, 3), 0)), false},
		{"gone", os.Remove, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "file")
			v := versions{seed: 1}
			if err := create(path, 1); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if err := v.stepAt(path); err != nil {
					t.Fatal(err)
				}
			}
			if err := tt.write(path); err != nil {
				t.Fatal(err)
			}
			if err := v.stepAt(path); (err == nil) != tt.ok {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestNames(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := absent(path); err != nil {
		t.Error(err)
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if absent(path) == nil || unlinked(f) == nil {
		t.Error("a file that is there passes for a deleted one")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := unlinked(f); err != nil {
		t.Error(err)
	}
}

func TestBeats(t *testing.T) {
	start := time.Unix(0, 0)
	at := func(n float64) time.Time { return start.Add(time.Duration(n * float64(period))) }
	tests := []struct {
		name          string
		count         int64
		before, after float64
		ok            bool
	}{
		{"as it should", 10, 9.5, 10.1, true},
		{"asked late", 10, 5, 50, true},
		{"too many", 20, 9.5, 10.1, false},
		{"late, as after a restore", 100, 199.5, 200.1, true},
		{"too few", 90, 200, 200.1, false},
		{"none for long", 0, 1000, 1000, false},
	}
	for _, tt := range tests {
		b := beats{start: start}
		if err := b.add(tt.count, at(tt.before), at(tt.after)); (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func TestBelongings(t *testing.T) {
	was, err := look()
	if err != nil {
		t.Fatal(err)
	}
	if err := was.differs(was); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*belongings){
		"environment": func(b *belongings) { b.environ = []byte("A=1\x00") },
		"command":     func(b *belongings) { b.cmdline = nil },
		"directory":   func(b *belongings) { b.dir = "/elsewhere" },
		"user":        func(b *belongings) { b.uid++ },
		"parent":      func(b *belongings) { b.parent++ },
	} {
		now := was
		change(&now)
		if was.differs(now) == nil {
			t.Errorf("another %s is not seen", name)
		}
	}
}
