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

// ErrInUse is the kind of error for a limit that cannot be put back yet: more memory than that is in use.
var ErrInUse = errors.New("more than that is in use")

// Change is one limit that is raised for a while. It is a record: any process that has it can undo the change,
// even if the process that made it died halfway.
type Change struct {
	File  string `json:"file"`
	Was   string `json:"was"`             // the value to put back
	From  string `json:"from"`            // the value before the change
	Is    string `json:"is"`              // the value after it
	Usage string `json:"usage,omitempty"` // directory of the memory cgroup whose usage must first fall to Was
}

// Raise returns the changes that make room for need bytes more than are used now, but never more than that above the
// present limit. It raises limits of the cgroup and of those above it, but only where own reports that the level is the
// pod's. A level that has the room, or has no limit, needs no change. Raise changes nothing yet: see [Apply].
func (m *Memory) Raise(need int64, own func(dir string) bool) (changes []Change, err error) {
	return m.change(own, func(l Level) int64 { return min(l.held(), l.Limit) + need })
}

// RaiseBy is Raise by a number of bytes above the present limit, regardless of what is used.
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

// raise returns the changes that raise a level's limit to a number of bytes. Limits that the new one must not
// exceed come first.
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

// Apply makes the changes, in their order. If somebody else has set one of the limits since the changes were
// planned, Apply fails. After an error, the changes before the failed one remain made.
func Apply(changes []Change) error {
	for _, c := range changes {
		now, err := read(c.File)
		if err == nil && now != c.From && now != c.Is {
			err = fmt.Errorf("it is %s by now", now)
		}
		if err == nil {
			err = c.write()
		}
		if err != nil {
			return fmt.Errorf("change limit %s from %s to %s: %w", c.File, c.From, c.Is, err)
		}
	}
	return nil
}

// writeTries bounds how often a limit of memory is written. If the thread that writes it has a signal pending, the
// kernel neither reclaims nor kills (v2, memory_max_write in mm/memcontrol.c), and Go's runtime sends its threads
// signals.
const writeTries = 5

// write writes a limit, and again as long as more is in use: only then the kernel looks at that again.
func (c Change) write() error {
	for range writeTries {
		err := os.WriteFile(c.File, []byte(c.Is), 0)
		if err != nil || !errors.Is(c.fits(c.Is), ErrInUse) {
			return err
		}
	}
	return nil
}

// Lower replaces changes of memory limits, so that the new ones leave spare bytes above what the limits were. Other
// changes, and limits that are as low, stay. Lower changes nothing yet: see [Apply].
//
// It does not matter what is in use. The kernel then reclaims what is over the limit. If it cannot, it kills in the
// cgroup (v2), or refuses the limit with EBUSY (v1): see [Over].
func Lower(changes []Change, spare int64) []Change {
	out := slices.Clone(changes)
	slices.Reverse(out) // the limits that others must not exceed come down last
	for i, c := range out {
		was, err := strconv.ParseInt(c.Was, 10, 64)
		if c.Usage == "" || err != nil {
			continue
		}
		low := whole(was + spare)
		if is, err := strconv.ParseInt(c.Is, 10, 64); err == nil && low < is {
			out[i].From, out[i].Is = c.Is, fmt.Sprint(low)
		}
	}
	return out
}

// Over reports whether a cgroup uses more than the limit after one of the changes, even without what the kernel
// reclaims.
func Over(changes []Change) bool {
	return slices.ContainsFunc(changes, func(c Change) bool { return errors.Is(c.fits(c.Is), ErrInUse) })
}

// whole rounds up to whole pages, because the kernel keeps limits in pages.
func whole(bytes int64) int64 {
	page := int64(os.Getpagesize())
	return (bytes + page - 1) / page * page
}

// Undo undoes changes, in reverse order. It returns the changes that it could not undo, and why. A limit that has
// another value by now stays as it is: somebody else has set it since. A limit whose cgroup is gone needs no
// undo. The error is of kind ErrInUse if the cgroup uses more than its old limit.
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
	if err := c.fits(c.Was); err != nil {
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

// fits returns nil if the cgroup uses so little that this limit kills nothing. With cgroup v2 the kernel would make
// room with the OOM killer.
func (c Change) fits(limit string) error {
	if c.Usage == "" {
		return nil
	}
	most, err := strconv.ParseInt(limit, 10, 64)
	if err != nil {
		return err
	}
	l, err := filesIn(c.Usage).level(c.Usage)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil && l.held() > most {
		err = fmt.Errorf("%w: %d bytes", ErrInUse, l.held())
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
