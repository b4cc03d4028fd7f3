package runsc

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"diapause.dev/api/snapshot"
)

// Node finds out what this node offers to restores, anew when its runsc was replaced. Its methods may be
// called concurrently.
type Node struct {
	config string // the shim's configuration file

	mu    sync.Mutex
	known map[binary]snapshot.Facts
}

// NewNode returns the node whose shim has a configuration file.
func NewNode(config string) *Node { return &Node{config: config} }

// binary tells one runsc binary, configured one way, from another.
type binary struct {
	device, inode uint64
	flags         string
	size          int64
	modified      time.Time
}

// maxKnown bounds how many binaries are remembered.
const maxKnown = 8

// Facts returns the node's facts.
func (n *Node) Facts(ctx context.Context) (snapshot.Facts, error) {
	c, err := ReadConfig(n.config)
	if err != nil {
		return snapshot.Facts{}, err
	}
	path, err := c.Path()
	if err != nil {
		return snapshot.Facts{}, err
	}
	return n.facts(ctx, c, path)
}

// FactsOf returns the facts of a running sandbox, whose runsc may be another one than that of sandboxes to
// come.
func (n *Node) FactsOf(ctx context.Context, pid int) (snapshot.Facts, error) {
	c, err := ReadConfig(n.config)
	if err != nil {
		return snapshot.Facts{}, err
	}
	return n.facts(ctx, c, Executable(pid))
}

func (n *Node) facts(ctx context.Context, c Config, path string) (snapshot.Facts, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return snapshot.Facts{}, fmt.Errorf("look at runsc %s: %w", path, err)
	}
	id := binary{st.Dev, st.Ino, fmt.Sprint(c.Flags), st.Size, time.Unix(st.Mtim.Unix())}
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
		n.known = make(map[binary]snapshot.Facts)
	}
	n.known[id] = f
	return f, nil
}
