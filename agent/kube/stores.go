package kube

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/kube/objects"
)

// StoresOf returns the locations of the stores of a cluster: the agents' own, and those that storage configs name. It
// is for programs that ask once.
func StoresOf(ctx context.Context, rc *rest.Config, own string) ([]string, error) {
	c, err := client.New(rc, client.Options{Scheme: scheme, Mapper: mapper()})
	if err != nil {
		return nil, fmt.Errorf("stores of the cluster: %w", err)
	}
	return objects.Configured(ctx, own, c.List)
}
