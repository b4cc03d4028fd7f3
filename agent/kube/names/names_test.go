package names_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"diapause.dev/agent/kube/names"
)

var today = time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)

// TestFall: names fall, even if the clock stands still or is set back.
func TestFall(t *testing.T) {
	now := today
	c := names.NewClock(func() time.Time { return now })
	last := c.Name(names.Chance())
	for _, step := range []time.Duration{
		0, 0, time.Microsecond, time.Nanosecond, -time.Hour, 0, time.Second,
		-100 * 365 * 24 * time.Hour, time.Hour,
	} {
		now = now.Add(step)
		name := c.Name(names.Chance())
		if name >= last {
			t.Errorf("%s after %s, a step of %v", name, last, step)
		}
		last = name
	}
}

// TestFallAcrossFields: the order of names is the reverse of that of their times, at every carry from bit to bit.
func TestFallAcrossFields(t *testing.T) {
	for bit := range 52 {
		now := today
		c := names.NewClock(func() time.Time { return now })
		older := c.Name(names.TagOf("x"))
		now = now.Add(time.Duration(1<<bit) * time.Microsecond)
		if newer := c.Name(names.TagOf("y")); newer >= older {
			t.Errorf("%s after %s, 2^%d µs later", newer, older, bit)
		}
	}
}

// TestForm: a name is a valid UUID and a valid object name. It is less than nearly all random names, and says when
// and for whom it was made.
func TestForm(t *testing.T) {
	c := names.NewClock(func() time.Time { return today })
	tag := names.TagOf("trigger")
	name := c.Name(tag)
	u, err := uuid.Parse(name)
	if err != nil || u.Version() != 8 || u.Variant() != uuid.RFC4122 || name != strings.ToLower(name) || name[0] != '0' {
		t.Errorf("%s: %v, version %d", name, err, u.Version())
	}
	if at, got, ok := names.Parse(name); !ok || !at.Equal(today) || got != tag {
		t.Errorf("%s says %v, %x; want %v, %x", name, at, got, today, tag)
	}
	for _, other := range []string{
		"", "web", uuid.NewString(), strings.ToUpper(name), "urn:uuid:" + name,
		strings.ReplaceAll(name, "-", ""),
	} {
		if _, _, ok := names.Parse(other); ok {
			t.Errorf("%q passes for a name of ours", other)
		}
	}
}

// TestSaw: a name is less than those that were seen, unless they are too far ahead.
func TestSaw(t *testing.T) {
	ahead := names.NewClock(func() time.Time { return today.Add(30 * time.Second) })
	c := names.NewClock(func() time.Time { return today })
	seen := ahead.Name(names.Chance())
	c.Saw(seen, today)
	if name := c.Name(names.Chance()); name >= seen {
		t.Errorf("%s after %s was seen", name, seen)
	}
	mad := names.NewClock(func() time.Time { return today.AddDate(100, 0, 0) }).Name(names.Chance())
	c.Saw(mad, today)
	c.Saw("00000000-0000-8000-8000-000000000000", today)
	c.Saw("not one of ours", today)
	if name := c.Name(names.Chance()); name <= mad {
		t.Errorf("%s after %s, which is a hundred years ahead", name, mad)
	}
}

// TestTogether: names that are made at once are all different. A goroutine that makes several sees them fall.
func TestTogether(t *testing.T) {
	c := names.NewClock(func() time.Time { return today })
	made := make([][]string, 8)
	var g sync.WaitGroup
	for i := range made {
		g.Go(func() {
			for range 1000 {
				made[i] = append(made[i], c.Name(names.TagOf("same")))
			}
		})
	}
	g.Wait()
	var all []string
	for _, m := range made {
		if !slices.IsSortedFunc(m, func(a, b string) int { return strings.Compare(b, a) }) {
			t.Error("names rise")
		}
		all = append(all, m...)
	}
	slices.Sort(all)
	if n := len(slices.Compact(all)); n != 8000 {
		t.Errorf("%d names, want 8000", n)
	}
}
