package agent

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"

	"diapause.dev/api/snapshot"
	"diapause.dev/runsc"
)

// nodeFacts finds out what the node offers, anew when its runsc was replaced.
type nodeFacts struct {
	config string // the shim's configuration file

	mu    sync.Mutex
	of    identity
	facts snapshot.Facts
}

// identity tells one runsc binary, configured one way, from another.
type identity struct {
	path, flags string
	size        int64
	modified    time.Time
}

// get returns the node's facts.
func (n *nodeFacts) get(ctx context.Context) (snapshot.Facts, error) {
	c, err := runsc.ReadConfig(n.config)
	if err != nil {
		return snapshot.Facts{}, err
	}
	path, err := exec.LookPath(c.Binary)
	if err != nil {
		return snapshot.Facts{}, fmt.Errorf("find runsc: %w", err)
	}
	fi, err := os.Stat(path)
	if err != nil {
		return snapshot.Facts{}, fmt.Errorf("find runsc: %w", err)
	}
	id := identity{path: path, flags: fmt.Sprint(c.Flags), size: fi.Size(), modified: fi.ModTime()}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.of == id {
		return n.facts, nil
	}
	f, err := c.Facts(ctx)
	if err != nil {
		return snapshot.Facts{}, err
	}
	n.of, n.facts = id, f
	return f, nil
}
