package rules

import (
	"time"

	"diapause.dev/api/snapshot"
)

// Orphans says which of the snapshots in a store that no PodSnapshot names are a cluster's to remove.
// It errs on the side of leaving them alone.
type Orphans struct {
	Cluster string    // identity of the cluster
	Since   time.Time // when Diapause was installed there: what was made before was left on purpose
	Before  time.Time // what was made or stored later may be on its way
}

// Spared returns why a snapshot is left alone, or "" if it is an orphan. stored is when its manifest
// was written.
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
