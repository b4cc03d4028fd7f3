package restore

import (
	"context"
	"time"

	"diapause.dev/api/snapshot"
)

// lastWords is how much longer than its life the agent may take to tell the cluster what has come to pass.
const lastWords = 3 * time.Second

// tellTime bounds what the cluster is told beside the path of a pod's start.
const tellTime = 10 * time.Second

// Tell tells the cluster how a restore failed, without keeping the caller waiting.
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
