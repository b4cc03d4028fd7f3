package snapshots

import (
	"strings"
	"testing"
	"time"

	"diapause.dev/api/snapshot"
)

func TestNewName(t *testing.T) {
	when := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))
	for pod, want := range map[string]string{
		"web": "web", "Web_1.x": "web-1-x", "-a-": "a", "": "pod", "---": "pod", "ü": "pod", "a/../b": "a----b",
		"a\x00b": "a-b", strings.Repeat("x", 300): strings.Repeat("x", 232), "\xff\xfe": "pod", "K": "k", // the Kelvin sign
	} {
		got := NewName(pod, when)
		if !strings.HasPrefix(got, want+"-20260102-020405-") || len(got) != len(want)+21 {
			t.Errorf("pod %q: %q, want %q and the time", pod, got, want)
		}
	}
}

func FuzzNewName(f *testing.F) {
	f.Add("web")
	f.Add("..")
	f.Add(strings.Repeat("-", 232) + "x")
	f.Fuzz(func(t *testing.T, pod string) {
		k := snapshot.Key{Namespace: "default", Name: NewName(pod, time.Now())}
		if err := k.Validate(); err != nil {
			t.Errorf("pod %q: %v", pod, err)
		}
	})
}
