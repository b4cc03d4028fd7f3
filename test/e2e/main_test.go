package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
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
	if !bed.Inside() {
		if err := makeSessions(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	bed.MainWith(func() (int, error) { return run(m) }, tools.Kubernetes, tools.KubeProxy)
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
