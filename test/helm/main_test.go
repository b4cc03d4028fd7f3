// Package helm installs the chart by Helm in a cluster of one node, upgrades it while a pod sleeps, and uninstalls it.
// The tests take some minutes, so they run only if asked: make helm.
package helm

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"diapause.dev/test/bed"
	"diapause.dev/test/tools"
)

var asked = flag.Bool("install", false, "run the tests, which install the chart in a cluster")

func TestMain(m *testing.M) {
	flag.Parse()
	if !*asked {
		fmt.Println("nothing is installed without -install: see make helm")
		os.Exit(0)
	}
	bed.Main(m, tools.Kubernetes, tools.Helm)
}
