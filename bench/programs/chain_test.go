package programs

import (
	"fmt"
	"strings"
	"testing"
)

func TestParseFound(t *testing.T) {
	good := fmt.Sprintf("3 %d 0 %d d1", chain(3), chain(0))
	tests := map[string]struct {
		answer string
		want   string // in the error
	}{
		"whole":           {good, ""},
		"another number":  {fmt.Sprintf("3 %d 0 %d d1", chain(4), chain(0)), "stream 0"},
		"no digest":       {strings.TrimSuffix(good, " d1"), "answer to a check"},
		"no number":       {strings.Replace(good, "3", "x", 1), "answer to a check"},
		"words":           {"the database is damaged", "answer to a check"},
		"five more words": {"the sum of balances changed", "answer to a check"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f, err := parseFound(test.answer)
			if test.want != "" {
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Fatalf("got %v, want an error with %q", err, test.want)
				}
				return
			}
			if want := (Found{Writes: [Streams]int64{3, 0}, Digest: "d1"}); err != nil || f != want {
				t.Errorf("got %+v, %v, want %+v", f, err, want)
			}
		})
	}
}

// TestChain: the order counts, and each number.
func TestChain(t *testing.T) {
	if got, want := chain(0), uint32(2166136261); got != want {
		t.Errorf("of nothing: got %d, want %d", got, want)
	}
	h := uint64(2166136261) // as a language computes it that has no numbers of 32 bits
	for n := range uint64(1000) {
		h = (h*16777619 ^ (n + 1)) & 0xffffffff
	}
	if got := chain(1000); uint64(got) != h {
		t.Errorf("of 1 to 1000: got %d, want %d", got, h)
	}
}

func TestByName(t *testing.T) {
	list, err := ByName([]string{"nginx", "redis"})
	if err != nil || len(list) != 2 || list[0].Name != "nginx" || list[1].Name != "redis" {
		t.Errorf("got %v, %v", list, err)
	}
	if _, err := ByName([]string{"emacs"}); err == nil || !strings.Contains(err.Error(), "redis,postgres") {
		t.Errorf("got %v, want an error that lists all", err)
	}
}
