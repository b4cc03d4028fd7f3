package limits

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gofrs/flock"
)

// grantsDir is where the shims of a node say what their saves may take.
const grantsDir = "/run/diapause/room"

const (
	grantsLimit = 2 * time.Second  // bounds the wait for other shims that look or take
	grantsPoll  = time.Millisecond // how often that is tried
	grantsLock  = "lock"           // the file that is locked meanwhile
	maxGrant    = 1 << 16          // bytes of one file
)

// grants are what saves on this node may take, all together. A save that has begun has not taken its memory yet, so
// that memory looks free. Each save therefore has a file, which its shim keeps locked. The kernel unlocks it if the
// shim dies. What a save has taken by now counts twice.
type grants struct{ dir string }

// grant is what one save may take.
type grant struct {
	Bytes   int64    `json:"bytes"`
	Cgroups []string `json:"cgroups"` // directories of those that the pod shares with others, from the inside out
}

// take adds the grant of a sandbox if fits, which gets those of others, returns no error. Give takes it back.
func (g grants) take(ctx context.Context, id string, own grant, fits func(others []grant) error,
) (give func(), err error) {
	data, err := json.Marshal(own)
	if err != nil {
		return nil, err
	}
	unlock, err := g.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := fits(g.others(id)); err != nil {
		return nil, err
	}
	held := flock.New(filepath.Join(g.dir, id), flock.SetPermissions(0o600))
	if ok, err := held.TryLock(); !ok || err != nil {
		return nil, errors.Join(fmt.Errorf("room for a save of sandbox %s is granted already", id), err)
	}
	if err := os.WriteFile(held.Path(), data, 0o600); err != nil {
		return nil, errors.Join(err, held.Close())
	}
	return func() { os.Remove(held.Path()); held.Close() }, nil
}

// look calls fits with the grants of other sandboxes.
func (g grants) look(ctx context.Context, id string, fits func(others []grant) error) error {
	unlock, err := g.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return fits(g.others(id))
}

func (g grants) lock(ctx context.Context) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, grantsLimit)
	defer cancel()
	if err := os.MkdirAll(g.dir, 0o700); err != nil {
		return nil, fmt.Errorf("room that saves may take: %w", err)
	}
	l := flock.New(filepath.Join(g.dir, grantsLock), flock.SetPermissions(0o600))
	if _, err := l.TryLockContext(ctx, grantsPoll); err != nil {
		return nil, errors.Join(fmt.Errorf("room that saves may take: another save looks at it: %w", err), l.Close())
	}
	return func() { l.Close() }, nil
}

// others returns the grants of other sandboxes, and removes those whose shim is gone. The caller holds the lock.
func (g grants) others(id string) (all []grant) {
	files, _ := os.ReadDir(g.dir) // those that can be read count
	for _, f := range files {
		if f.Name() == grantsLock || f.Name() == id {
			continue
		}
		if other, ok := readGrant(filepath.Join(g.dir, f.Name())); ok {
			all = append(all, other)
		}
	}
	return all
}

// readGrant reads a grant whose shim lives.
func readGrant(path string) (own grant, ok bool) {
	l := flock.New(path, flock.SetFlag(os.O_RDONLY))
	defer l.Close()
	if free, err := l.TryRLock(); err != nil {
		return own, false // given back meanwhile
	} else if free {
		os.Remove(path)
		return own, false
	}
	f, err := os.Open(path)
	if err != nil {
		return own, false
	}
	defer f.Close()
	ok = json.NewDecoder(io.LimitReader(f, maxGrant)).Decode(&own) == nil
	return own, ok
}

// sum returns how many bytes grants come to in a cgroup; an empty directory stands for the node.
func sum(all []grant, dir string) (bytes int64) {
	for _, g := range all {
		if dir == "" || slices.Contains(g.Cgroups, dir) {
			bytes += g.Bytes
		}
	}
	return bytes
}
