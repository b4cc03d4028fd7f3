package recorded

import (
	"errors"
	"strings"
	"testing"

	"diapause.dev/agent/errkind"
	"diapause.dev/api/snapshot"
)

func TestRoom(t *testing.T) {
	for name, c := range map[string]struct {
		memory, limit int64
		refused       bool
	}{
		"no limit":                      {memory: 1 << 40},
		"a snapshot that does not tell": {limit: 1 << 20},
		"fits":                          {memory: 256 << 20, limit: 300 << 20},
		"fits exactly":                  {memory: 256 << 20, limit: 256<<20 + SandboxOverhead},
		"without the sandbox's own":     {memory: 256 << 20, limit: 256 << 20, refused: true},
		"far too large":                 {memory: 496 << 20, limit: 64 << 20, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			meta := &snapshot.Meta{Key: snapshot.Key{Namespace: "default", Name: "counter"}, Memory: c.memory}
			if err := Room(meta, c.limit); errors.Is(err, errkind.ErrMemoryLimit) != c.refused {
				t.Errorf("got %v", err)
			}
		})
	}
	err := Room(&snapshot.Meta{Key: snapshot.Key{Namespace: "default", Name: "counter"}, Memory: 496 << 20}, 64<<20)
	const want = "restore default/counter: snapshot needs 512 MiB, the pod's memory limit is 64 MiB: raise the limit"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}
