package progress

import (
	"strings"
	"testing"
	"time"
)

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB",
		1<<20 - 1: "1024.0 KiB", 256 << 20: "256.0 MiB", 1 << 62: "4.0 EiB",
	} {
		if got := Size(n); got != want {
			t.Errorf("Size(%d) = %q, want %q", n, got, want)
		}
	}
}

// TestLines: there is one line when a stage begins, one in five seconds, and one when it is complete.
func TestLines(t *testing.T) {
	var out strings.Builder
	now := time.Unix(0, 0)
	l := newLines(&out, Bytes)
	l.now = func() time.Time { return now }
	l.Update("capture", 0, 0)
	l.Update("capture", 1<<20, 4<<20)
	l.Update("store", 1<<20, 4<<20)
	l.Update("capture", 2<<20, 4<<20)
	l.Update("load", 0, 4<<20)
	l.Update("load", 4<<20, 4<<20)
	l.Update("load", 4<<20, 4<<20)
	now = now.Add(every)
	l.Update("store", 8<<20, 4<<20)
	l.Update("sweep", 5, 0)
	l.Note("a\x1bb")
	want := "capture\nstore: 25% (1.0 MiB of 4.0 MiB)\nload: 0% (0 B of 4.0 MiB)\nload: 100% (4.0 MiB of 4.0 " +
		"MiB)\nstore: 100% (8.0 MiB of 4.0 MiB)\nsweep: 5 B\na?b\n"
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

// TestBar draws into a buffer. The line is clean at the end.
func TestBar(t *testing.T) {
	var out strings.Builder
	b := &bar{w: &out, unit: Bytes}
	b.Update("prepare", 0, 0)
	b.Update("capture", 0, 4<<20)
	b.Update("capture", 9<<20, 4<<20)
	b.Note("kept")
	b.Update("store", 1, 2)
	b.Close()
	b.Close()
	for _, s := range []string{"prepare", "capture", "kept\n", "store"} {
		if !strings.Contains(out.String(), s) {
			t.Errorf("no %q in %q", s, out.String())
		}
	}
	if !strings.HasSuffix(out.String(), "\r") && !strings.HasSuffix(out.String(), "\x1b[2K\r") {
		t.Errorf("the bar stays: %q", out.String())
	}
}

func TestNewIsPlainElsewhere(t *testing.T) {
	if _, ok := New(&strings.Builder{}, Objects).(*lines); !ok {
		t.Error("want lines for what is no terminal")
	}
}
