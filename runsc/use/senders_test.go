package use

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestHostileSenders: whatever a file says, at most a few senders are read of it.
func TestHostileSenders(t *testing.T) {
	const one = `{"Protocol": "TCP", "From": "10.0.0.7", "Port": 80, "Broadcast": false, "Packets": 3}`
	dir := t.TempDir()
	for text, want := range map[string]int{
		"[]":            0,
		"[" + one + "]": 1,
		"[" + strings.Repeat(one+",", 9) + one + "]": maxSenders,
		"":                     -1,
		"{}":                   -1,
		`[{"From": "nobody"}]`: -1,
		"[" + strings.Repeat(" ", maxSendersFile) + "]": -1,
	} {
		if err := os.WriteFile(filepath.Join(dir, "sandbox"+senders), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if all, err := Senders(dir, "sandbox"); (err != nil) != (want < 0) || len(all) != max(want, 0) {
			t.Errorf("%.40q: %+v, %v; want %d", text, all, err, want)
		}
	}
	if _, err := Senders(dir, "another"); err == nil {
		t.Error("a sandbox of which nothing is known has senders")
	}
}
