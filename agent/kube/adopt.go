package kube

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/kube/adopt"
	"diapause.dev/agent/kube/objects"
)

// Adopt has a cluster take over the snapshots of another one, as an administrator of the cluster. It sets the
// configuration's client and clock.
func Adopt(ctx context.Context, rc *rest.Config, c adopt.Config) (r adopt.Report, err error) {
	rc = rest.CopyConfig(rc)
	clock := objects.NewClock(time.Now)
	rc.Wrap(clock.Listen)
	c.Now = clock.Now
	rc.QPS, rc.Burst = requestRate, requestBurst
	if c.Client, err = client.New(rc, client.Options{Scheme: scheme, Mapper: mapper()}); err != nil {
		return r, fmt.Errorf("adopt: %w", err)
	}
	return adopt.Run(ctx, c)
}
