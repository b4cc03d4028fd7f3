package bed

import (
	"errors"
	"os"
	"testing"
)

func TestSweepRemovesOnlyTheDead(t *testing.T) {
	root := t.TempDir()
	dead, err := newScratch(root)
	if err != nil {
		t.Fatal(err)
	}
	alive, err := newScratch(root)
	if err != nil {
		t.Fatal(err)
	}
	dead.lock.Close() // as the kernel does for a dead warden
	last, err := newScratch(root)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dead.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory of the dead bed is still there: %v", err)
	}
	for _, s := range []*scratch{alive, last} {
		if _, err := os.Stat(s.dir); err != nil {
			t.Errorf("the directory of a bed in use: %v", err)
		}
		if err := s.remove(); err != nil {
			t.Error(err)
		}
	}
}

func TestPlainLog(t *testing.T) {
	tests := map[string]struct{ log, want string }{
		"empty":      {"", ""},
		"one line":   {"2026-01-01T00:00:00Z stdout F hello world\n", "hello world\n"},
		"empty line": {"2026-01-01T00:00:00Z stdout F \n", "\n"},
		"in parts":   {"2026-01-01T00:00:00Z stdout P hel\n2026-01-01T00:00:00Z stdout F lo\n", "hello\n"},
		"cut off":    {"2026-01-01T00:00:00Z stdout F a\n2026-01", "a\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := plainLog(test.log); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
