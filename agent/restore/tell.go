package restore

import (
	"context"
	"time"

	"diapause.dev/agent/lifetime"
	"diapause.dev/api/snapshot"
)

// lastWords is how long after the end of its life the agent may still take to tell the cluster what has happened.
const lastWords = 3 * time.Second

// tellTime bounds how long a message to the cluster may take. It is sent in the background and does not delay a pod's
// start.
const tellTime = 10 * time.Second

// reports are sent to the cluster that the node belongs to.
type reports struct {
	cluster Cluster // or nil
	life    *lifetime.Life
}

// tell tells the cluster in the background why a restore failed.
func (p *reports) tell(ctx context.Context, pod snapshot.PodRef, key snapshot.Key, err error) {
	if p.cluster == nil {
		return
	}
	p.life.Go(func() {
		ctx, cancel := p.life.Outliving(ctx, tellTime, lastWords)
		defer cancel()
		p.cluster.NotRestored(ctx, pod, key, err)
	})
}
