package bed

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gofrs/flock"

	"diapause.dev/test/tools"
)

// prefix begins the name of every bed.
const prefix = "diapause-bed-"

// scratch is the directory of one bed on a real disk, and with its name the
// bed's cgroup. The lock in it is held as long as the warden lives, so that a
// later bed can tell what was left behind from what is in use.
type scratch struct {
	name string
	dir  string
	lock *flock.Flock
}

// newScratch makes a scratch directory below the module's root, and removes
// what dead wardens have left there.
func newScratch(root string) (*scratch, error) {
	run := filepath.Join(root, ".cache", "run")
	if err := os.MkdirAll(run, 0o755); err != nil {
		return nil, err
	}
	all := newLock(run)
	if err := all.Lock(); err != nil {
		return nil, fmt.Errorf("lock %s: %w", all, err)
	}
	defer all.Close()
	if err := sweep(run); err != nil {
		return nil, err
	}
	name := prefix + strings.ToLower(rand.Text()[:8])
	s := &scratch{name: name, dir: filepath.Join(run, name)}
	if err := makeDisks(s.dir); err != nil {
		return nil, err
	}
	s.lock = newLock(s.dir)
	if err := s.lock.Lock(); err != nil {
		return nil, fmt.Errorf("lock %s: %w", s.lock, err)
	}
	return s, nil
}

// makeDisks makes the directories below dir that a node sees of the real disk.
func makeDisks(dir string) error {
	for name := range disks {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// RunscVariable is the environment variable that names the program that beds have as runsc: [tools.RunscFast], the
// default, or runsc, gVisor's own build.
const RunscVariable = "DIAPAUSE_RUNSC"

// RunscStock is gVisor's own build among the programs of a bed, beside [tools.RunscFast]. One of the two is runsc, too.
const RunscStock = "runsc-stock"

// link gives the bed its own copy of the programs.
func (s *scratch) link(bin tools.Bin) (tools.Bin, error) {
	bin, err := bin.Link(context.Background(), filepath.Join(s.dir, "bin"))
	if err == nil {
		err = os.Rename(bin.Path("runsc"), bin.Path(RunscStock))
	}
	if err != nil {
		return bin, err
	}
	name := cmp.Or(os.Getenv(RunscVariable), tools.RunscFast)
	if name == "runsc" {
		name = RunscStock
	}
	return bin, os.Link(bin.Path(name), bin.Path("runsc"))
}

// remove removes the bed's cgroups and its directory. All processes of the bed
// must be dead, or be frozen ones that die when they are thawed.
func (s *scratch) remove() error {
	defer s.lock.Close()
	thaw(s.name)
	return errors.Join(removeCgroups(s.name), os.RemoveAll(s.dir))
}

// sweep removes the beds below run whose warden is dead.
func sweep(run string) error {
	dirs, err := filepath.Glob(filepath.Join(run, prefix+"*"))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		lock := newLock(dir)
		locked, err := lock.TryLock()
		if err == nil && !locked || errors.Is(err, os.ErrNotExist) {
			continue // in use, or just now removed
		}
		if err != nil {
			return fmt.Errorf("lock %s: %w", lock, err)
		}
		s := &scratch{name: filepath.Base(dir), dir: dir, lock: lock}
		if err := s.remove(); err != nil {
			return fmt.Errorf("remove what the dead bed %s left: %w", s.name, err)
		}
	}
	return nil
}

// newLock returns the lock of a directory, unlocked.
func newLock(dir string) *flock.Flock {
	return flock.New(filepath.Join(dir, "lock"), flock.SetPermissions(0o644))
}
