package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"diapause.dev/test/bed"
	"diapause.dev/test/tools"
)

// Limits of what is waited for.
const (
	startLimit = 4 * time.Minute  // until a cluster is there with all that is installed
	limit      = 10 * time.Minute // for one test, on a machine that is three times as slow as usual
)

// beside is how many tests run side by side, of those that are parallel, unless -parallel says so. They mostly wait, so
// they may be more than there are processors.
const beside = "3"

// shared is the cluster of all tests. A test that is parallel touches its own namespaces alone. One that stops, drains,
// upgrades or limits what belongs to all, or that counts what others make, too, has the cluster to itself.
var shared *cluster

func TestMain(m *testing.M) {
	if err := setParallel(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if !bed.Inside() {
		if err := makeSessions(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	bed.MainWith(func() (int, error) { return run(m) }, tools.Kubernetes, tools.KubeProxy, tools.S3)
}

// setParallel sets how many tests run side by side, if it is not given.
func setParallel() error {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given {
		return nil
	}
	return flag.Set("test.parallel", beside)
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
