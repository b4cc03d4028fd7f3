package agent

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"diapause.dev/api/snapshot"
	"diapause.dev/runsc"
)

// nodeFacts finds out what the node offers, anew when its runsc was replaced.
type nodeFacts struct {
	config string // the shim's configuration file

	mu    sync.Mutex
	known map[identity]snapshot.Facts
}

// identity tells one runsc binary, configured one way, from another.
type identity struct {
	device, inode uint64
	flags         string
	size          int64
	modified      time.Time
}

// maxKnown bounds how many binaries are remembered.
const maxKnown = 8

// get returns the node's facts.
func (n *nodeFacts) get(ctx context.Context) (snapshot.Facts, error) {
	c, err := runsc.ReadConfig(n.config)
	if err != nil {
		return snapshot.Facts{}, err
	}
	path, err := c.Path()
	if err != nil {
		return snapshot.Facts{}, err
	}
	return n.facts(ctx, c, path)
}

// of returns the facts of a running sandbox, whose runsc may be another one than that of sandboxes to
// come.
func (n *nodeFacts) of(ctx context.Context, pid int) (snapshot.Facts, error) {
	c, err := runsc.ReadConfig(n.config)
	if err != nil {
		return snapshot.Facts{}, err
	}
	return n.facts(ctx, c, runsc.Executable(pid))
}

func (n *nodeFacts) facts(ctx context.Context, c runsc.Config, path string) (snapshot.Facts, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return snapshot.Facts{}, fmt.Errorf("look at runsc %s: %w", path, err)
	}
	id := identity{st.Dev, st.Ino, fmt.Sprint(c.Flags), st.Size, time.Unix(st.Mtim.Unix())}
	n.mu.Lock()
	defer n.mu.Unlock()
	if f, ok := n.known[id]; ok {
		return f, nil
	}
	f, err := c.Facts(ctx, path)
	if err != nil {
		return snapshot.Facts{}, err
	}
	if n.known == nil || len(n.known) == maxKnown {
		n.known = make(map[identity]snapshot.Facts)
	}
	n.known[id] = f
	return f, nil
}
