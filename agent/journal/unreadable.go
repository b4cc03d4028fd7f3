package journal

import (
	"errors"
	"os"
	"strings"
)

// unreadableSuffix marks a file that is not a valid record. It is kept for an operator who looks into it.
const unreadableSuffix = ".unreadable"

// errNoRecord is the kind of error for a file that is not a record, or not the right one.
var errNoRecord = errors.New("not a record")

// lose gives up a request whose record cannot be read. If only the disk failed, or a newer agent has written the
// record, the file stays, and the next agent may be able to read it. Any other file is set aside.
func (j *Journal) lose(id string, err error) {
	j.log.Error("journal entry unreadable; its request is given up, and its snapshot, if there is one, stays on this node",
		"request", id, "error", err)
	j.lost = append(j.lost, id)
	if errors.Is(err, errNoRecord) {
		j.setAside(id)
	}
}

// setAside renames an invalid record, out of the way of a later one.
func (j *Journal) setAside(id string) {
	path := j.path(id)
	if err := os.Rename(path, strings.TrimSuffix(path, ".json")+unreadableSuffix); err != nil {
		j.log.Warn("unreadable journal entry not set aside", "request", id, "error", err)
	}
}
