package restore

import (
	"context"
	"time"

	"diapause.dev/api/snapshot"
)

// lastWords is how long after the end of its life the agent may still take to tell the cluster what has happened.
const lastWords = 3 * time.Second

// tellTime bounds how long a message to the cluster may take. It is sent in the background and does not delay a pod's
// start.
const tellTime = 10 * time.Second

// Tell tells the cluster in the background why a restore failed.
func (rs *Restores) Tell(ctx context.Context, pod snapshot.PodRef, key snapshot.Key, err error) {
	if rs.cluster == nil {
		return
	}
	rs.Life.Go(func() {
		ctx, cancel := rs.Life.Outliving(ctx, tellTime, lastWords)
		defer cancel()
		rs.cluster.NotRestored(ctx, pod, key, err)
	})
}
