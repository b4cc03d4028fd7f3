package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"diapause.dev/test/bed"
	"diapause.dev/test/tools"
)

// Limits of what is waited for.
const (
	startLimit = 4 * time.Minute // until a cluster is there with all that is installed
	limit      = 5 * time.Minute // for one test
)

// shared is the cluster of all tests, which run one after the other.
var shared *cluster

func TestMain(m *testing.M) {
	bed.MainWith(func() (int, error) { return run(m) }, tools.Kubernetes)
}

func run(m *testing.M) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	began := time.Now()
	if shared, err = startCluster(ctx); err != nil {
		return 1, err
	}
	fmt.Printf("the cluster and all that is installed took %v\n", time.Since(began).Round(time.Millisecond))
	code = m.Run()
	return code, errors.Join(shared.left(), shared.Close())
}
