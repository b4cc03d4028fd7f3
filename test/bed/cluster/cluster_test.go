package cluster

import (
	"context"
	"testing"
	"time"

	"diapause.dev/test/bed"
)

func startCluster(t *testing.T) (context.Context, *bed.Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	begin := time.Now()
	c, err := bed.StartCluster(ctx, bed.ClusterOptions{Nodes: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the cluster was ready after %s", time.Since(begin).Round(10*time.Millisecond))
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return ctx, c
}

func TestCluster(t *testing.T) {
	ctx, c := startCluster(t)
	out, err := c.Kubectl(ctx, "get", "nodes,pods,runtimeclass", "-A", "-o", "wide")
	t.Log(out, err)
}
