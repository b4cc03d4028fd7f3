package journal

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// unreadableSuffix marks a file that is not a valid record. It is kept for an operator who looks into it. Its
// modification time says when it was set aside.
const unreadableSuffix = ".unreadable"

// keptUnreadable is how many invalid records the journal keeps. Only their number is limited, not their age: the node's
// clock may be wrong.
const keptUnreadable = 100

// errNoRecord is the kind of error for a file that is not a record, or not the right one.
var errNoRecord = errors.New("not a record")

// lose gives up a request whose record cannot be read. If only the disk failed, or a newer agent has written the
// record, the file stays, and the next agent may be able to read it. Any other file is set aside.
func (j *Journal) lose(id string, err error) {
	j.log.Error("journal entry unreadable; its request is abandoned, and its snapshot, if any, stays on this node",
		"request", id, "error", err)
	j.lost = append(j.lost, id)
	if errors.Is(err, errNoRecord) {
		j.setAside(id)
	}
}

// setAside renames an invalid record, out of the way of a later one.
func (j *Journal) setAside(id string) {
	path, now := j.path(id), time.Now()
	err := os.Chtimes(path, now, now)
	if err == nil {
		err = os.Rename(path, strings.TrimSuffix(path, ".json")+unreadableSuffix)
	}
	if err != nil {
		j.log.Warn("unreadable journal entry not set aside", "request", id, "error", err)
	}
}

// pruneUnreadable removes the oldest invalid records beyond keptUnreadable. One that cannot be removed now is removed
// when the next agent opens the journal.
func (j *Journal) pruneUnreadable() {
	files, err := j.unreadable()
	if err != nil {
		j.log.Warn("unreadable journal entries not listed", "error", err)
	}
	for _, f := range files[:max(len(files)-keptUnreadable, 0)] {
		if err := os.Remove(filepath.Join(j.dir, f.Name())); err != nil {
			j.log.Warn("unreadable journal entry not removed", "file", f.Name(), "error", err)
			continue
		}
		j.log.Warn("unreadable journal entry removed, as there are newer ones", "file", f.Name(), "set_aside",
			f.ModTime(), "kept", keptUnreadable)
	}
}

// unreadable returns the invalid records, the one that was set aside first first.
func (j *Journal) unreadable() (out []fs.FileInfo, err error) {
	entries, err := os.ReadDir(j.dir)
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), unreadableSuffix) {
			continue
		}
		if info, err := e.Info(); err == nil { // else it was removed meanwhile
			out = append(out, info)
		}
	}
	slices.SortFunc(out, func(a, b fs.FileInfo) int {
		return cmp.Or(a.ModTime().Compare(b.ModTime()), cmp.Compare(a.Name(), b.Name()))
	})
	return out, err
}
