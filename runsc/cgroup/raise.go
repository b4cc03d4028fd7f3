package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// ErrInUse is the kind of error of a limit that cannot be put back yet: more than that is in use.
var ErrInUse = errors.New("more than that is in use")

// Change is one limit that is raised for a while. It is a record: whoever has it can take the change
// back, also if the process that made it died in the middle.
type Change struct {
	File  string `json:"file"`
	Was   string `json:"was"`             // to be put back
	From  string `json:"from"`            // what it is before the change
	Is    string `json:"is"`              // and after it
	Usage string `json:"usage,omitempty"` // directory of the memory cgroup that must use less than Was first
}

// Raise returns the changes that let those of the cgroup and the ones above it that own reports to be the
// pod's take need more bytes than they use now. A level that has the room, or no limit, needs none. Nothing
// is changed yet.
func (m *Memory) Raise(need int64, own func(dir string) bool) (changes []Change, err error) {
	return m.change(own, func(l Level) int64 { return l.Usage - l.Reclaimable + need })
}

// RaiseBy is Raise by a number of bytes, whatever is used now.
func (m *Memory) RaiseBy(more int64, own func(dir string) bool) (changes []Change, err error) {
	return m.change(own, func(l Level) int64 { return l.Limit + more })
}

func (m *Memory) change(own func(dir string) bool, want func(Level) int64) (changes []Change, err error) {
	levels, err := m.Levels()
	if err != nil {
		return nil, err
	}
	for _, l := range levels {
		if !own(l.Dir) || l.Limit == Unlimited || l.Limit >= want(l) {
			continue
		}
		more, err := m.files.raise(l, want(l))
		if err != nil {
			return nil, err
		}
		changes = append(changes, more...)
	}
	return changes, nil
}

// raise returns the changes that raise a level's limit to a number of bytes, those that would hold the
// limit down first.
func (f *files) raise(l Level, bytes int64) (changes []Change, err error) {
	bytes = whole(bytes)
	for _, name := range append(slices.Clone(f.lids), f.limit) {
		path := filepath.Join(l.Dir, name)
		is, err := readLimit(path)
		if errors.Is(err, os.ErrNotExist) && name != f.limit {
			continue
		}
		if err != nil {
			return nil, err
		}
		if is < bytes {
			was := fmt.Sprint(is)
			changes = append(changes, Change{File: path, Was: was, From: was, Is: fmt.Sprint(bytes), Usage: l.Dir})
		}
	}
	return changes, nil
}

// Merge returns the changes to be made where some were made before and not taken back: the value to go
// back to stays the first one, unless somebody else has set another since.
func Merge(before, more []Change) []Change {
	out := slices.Clone(before)
	for _, c := range more {
		i := slices.IndexFunc(out, func(b Change) bool { return b.File == c.File })
		if i < 0 {
			out = append(out, c)
			continue
		}
		if out[i].Is == c.From || out[i].From == c.From {
			c.Was = out[i].Was
		}
		out[i] = c
	}
	return out
}

// Apply makes the changes, in their order. After an error those before the failed one are made. A limit
// that somebody else has set since they were planned is one.
func Apply(changes []Change) error {
	for _, c := range changes {
		now, err := read(c.File)
		if err == nil && now != c.From && now != c.Is {
			err = fmt.Errorf("it is %s by now", now)
		}
		if err == nil {
			err = os.WriteFile(c.File, []byte(c.Is), 0)
		}
		if err != nil {
			return fmt.Errorf("change limit %s from %s to %s: %w", c.File, c.From, c.Is, err)
		}
	}
	return nil
}

// tightSlack is how much memory more than it uses a cgroup may use that Tighten has been at.
const tightSlack = 4 << 20

// Tighten returns changes that take the place of changes which cannot be taken back yet, for more is in
// use: they bring the limits down to that. Nothing is changed yet.
func Tighten(changes []Change) []Change {
	out := slices.Clone(changes)
	slices.Reverse(out) // what holds a limit down comes down last
	for i, c := range out {
		l, err := filesIn(c.Usage).level(c.Usage)
		if c.Usage == "" || err != nil {
			continue
		}
		tight := whole(l.Usage - l.Reclaimable + tightSlack)
		if is, err := strconv.ParseInt(c.Is, 10, 64); err == nil && tight < is {
			out[i].From, out[i].Is = c.Is, fmt.Sprint(tight)
		}
	}
	return out
}

// whole rounds up to whole pages, as the kernel keeps limits.
func whole(bytes int64) int64 {
	page := int64(os.Getpagesize())
	return (bytes + page - 1) / page * page
}

// Undo takes changes back, in reverse order, and returns those that are left with the reason. A limit that
// has another value by now is left alone: somebody else has set it since. One whose cgroup is gone needs
// nothing. The error is of kind ErrInUse if the cgroup uses more than its limit was.
func Undo(changes []Change) (left []Change, err error) {
	for _, c := range slices.Backward(changes) {
		if failed := c.undo(); failed != nil {
			left, err = append(left, c), errors.Join(err, failed)
		}
	}
	slices.Reverse(left)
	return left, err
}

func (c Change) undo() error {
	now, err := read(c.File)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("put limit %s back to %s: %w", c.File, c.Was, err)
	}
	if now != c.Is && now != c.From {
		return nil
	}
	if err := c.fits(); err != nil {
		return fmt.Errorf("put limit %s back to %s: %w", c.File, c.Was, err)
	}
	if err := os.WriteFile(c.File, []byte(c.Was), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("put limit %s back to %s: %w", c.File, c.Was, err)
	}
	return nil
}

func read(path string) (string, error) {
	data, err := os.ReadFile(path)
	return strings.TrimSpace(string(data)), err
}

// fits reports whether the cgroup uses so little that the old limit kills nobody: cgroup v2 would make
// room with the OOM killer.
func (c Change) fits() error {
	if c.Usage == "" {
		return nil
	}
	was, err := strconv.ParseInt(c.Was, 10, 64)
	if err != nil {
		return err
	}
	l, err := filesIn(c.Usage).level(c.Usage)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil && l.Usage-l.Reclaimable > was {
		err = fmt.Errorf("%w: %d bytes", ErrInUse, l.Usage-l.Reclaimable)
	}
	return err
}

// filesIn returns the files of the cgroup whose directory is dir.
func filesIn(dir string) *files {
	if has(filepath.Join(dir, v1.limit)) {
		return &v1
	}
	return &v2
}
