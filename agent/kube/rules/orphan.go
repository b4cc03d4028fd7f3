package rules

import (
	"time"

	"diapause.dev/api/snapshot"
)

// Orphans says which snapshots a cluster may remove from a store, if no PodSnapshot names them. In doubt it spares
// them.
type Orphans struct {
	Cluster string    // id of the cluster
	Since   time.Time // when Diapause was installed there: older snapshots were left on purpose
	Before  time.Time // snapshots made or stored later may still get a PodSnapshot
}

// Spared returns why a snapshot is not removed, or "" if it is an orphan. Stored is when its manifest was written.
func (o Orphans) Spared(m *snapshot.Meta, stored time.Time) (why string) {
	switch {
	case m.Origin.Cluster == "":
		return "it does not name its cluster"
	case m.Origin.Cluster != o.Cluster:
		return "it belongs to another cluster"
	case m.Created.Before(o.Since):
		return "it was made before Diapause was installed in this cluster"
	case m.Created.After(o.Before) || stored.After(o.Before):
		return "it is young"
	}
	return ""
}
