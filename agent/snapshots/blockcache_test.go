package snapshots

import (
	"testing"

	"diapause.dev/agent/journal/journaltest"
)

// TestBlockCache: without a cache restores are slower, but nothing fails.
func TestBlockCache(t *testing.T) {
	none := &blockCache{dir: t.TempDir(), log: journaltest.Quiet}
	bad := &blockCache{dir: "/dev/null/cache", maxBytes: 1 << 20, log: journaltest.Quiet}
	for _, c := range []*blockCache{none, bad} {
		if c.get() != nil || c.due() != nil || c.bytes() != 0 || c.close() != nil {
			t.Error("there is a cache")
		}
	}
	good := &blockCache{dir: t.TempDir(), maxBytes: 1 << 20, log: journaltest.Quiet}
	if good.due() != nil {
		t.Error("it is due before it is open")
	}
	if c := good.get(); c == nil || good.get() != c || good.due() != c {
		t.Error("there is none, or another one each time")
	}
	if good.noteTidied(); good.due() != nil {
		t.Error("it is due at once")
	}
	if err := good.close(); err != nil {
		t.Error(err)
	}
}
