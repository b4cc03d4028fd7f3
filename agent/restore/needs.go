package restore

import (
	"diapause.dev/agent/asleep"
	"diapause.dev/agent/requests"
	"diapause.dev/api/snapshot"
)

// Needs say which pods need which snapshots, because they sleep and are nowhere else. It goes by what is written in the
// directories of requests and in the reminders, so it knows no restore. Its methods may be called concurrently.
type Needs struct {
	records   records
	marks     *asleep.Marks
	reminders *asleep.Reminders
}

// NewNeeds returns the needs of a node's pods. Dir has the directories of requests.
func NewNeeds(dir requests.Dir, m *asleep.Marks, rs *asleep.Reminders) *Needs {
	return &Needs{records: records{dir}, marks: m, reminders: rs}
}

// Needed returns the pod that sleeps, or slept when the node went down, and is woken from the snapshot with this UID,
// or "". With an empty uid it looks for any snapshot with the key.
func (n *Needs) Needed(k snapshot.Key, uid string) (pod string) {
	for request := range n.marks.Requests() {
		r, err := n.records.read(request)
		if err == nil && r.Key == k && (uid == "" || uid == r.UID) {
			return r.Pod.String()
		}
	}
	return n.reminders.Needed(k, uid)
}
