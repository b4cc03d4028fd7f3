package journal

import (
	"errors"
	"os"
	"strings"
)

// unreadableSuffix is that of a record which could not be made sense of. The file is kept for whoever looks into it.
const unreadableSuffix = ".unreadable"

// errNoRecord is the kind of error of a file that is not, or no longer, a record.
var errNoRecord = errors.New("not a record")

// lose notes that the record of a request cannot be read. One that the disk does not give now, or that a newer agent has
// written, may be read by the next agent; any other is set aside.
func (j *Journal) lose(id string, err error) {
	j.log.Error("journal entry unreadable; its request is given up, and its snapshot, if there is one, stays on this node",
		"request", id, "error", err)
	j.lost = append(j.lost, id)
	if errors.Is(err, errNoRecord) {
		j.setAside(id)
	}
}

// setAside keeps a record that says nothing out of the way of a later one.
func (j *Journal) setAside(id string) {
	path := j.path(id)
	if err := os.Rename(path, strings.TrimSuffix(path, ".json")+unreadableSuffix); err != nil {
		j.log.Warn("unreadable journal entry not set aside", "request", id, "error", err)
	}
}
