package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"diapause.dev/agent"
	"diapause.dev/agent/kube"
)

// clusterFlags say whether the node belongs to a cluster, and how to reach the cluster.
type clusterFlags struct {
	kubernetes            bool
	kubeconfig, namespace string
	orphanAge             time.Duration
}

// namespaceFile contains the namespace of the pod that a program runs in.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

func (c *clusterFlags) register(f *pflag.FlagSet) {
	f.BoolVar(&c.kubernetes, "kubernetes", false,
		"serve the cluster that this node belongs to: its PodSnapshots, triggers and pods")
	c.registerShared(f)
}

// registerShared registers the flags that the agent and the controller share.
func (c *clusterFlags) registerShared(f *pflag.FlagSet) {
	c.registerAccess(f)
	f.StringVar(&c.namespace, "namespace", "",
		"namespace of the agents and the controller (default: that of the program's pod, or diapause-system)")
	f.DurationVar(&c.orphanAge, "orphan-age", 24*time.Hour,
		"age at which a snapshot of this cluster that no PodSnapshot names is removed from its store; 0: never. It counts "+
			"for the agents if the store is a disk of the node, and for the controller otherwise")
}

// registerAccess registers the flag that says how to reach the cluster.
func (c *clusterFlags) registerAccess(f *pflag.FlagSet) {
	f.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig file (default: the service account of the program's pod)")
}

// of returns the cluster that the agent belongs to. It returns nil if there is none.
func (c *clusterFlags) of(cfg agent.Config) (*kube.Config, error) {
	if !c.kubernetes {
		return nil, nil
	}
	rc, err := c.config("diapause-agent/" + cfg.Version)
	if err != nil {
		return nil, fmt.Errorf("--kubernetes: %w", err)
	}
	return &kube.Config{RestConfig: rc, Namespace: c.ofAgents(), OrphanAge: c.orphanAge}, nil
}

// config returns how to reach the API server, under the name that the program gives itself.
func (c *clusterFlags) config(program string) (rc *rest.Config, err error) {
	if c.kubeconfig == "" {
		rc, err = rest.InClusterConfig()
	} else {
		rc, err = clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	}
	if err != nil {
		return nil, err
	}
	return rest.AddUserAgent(rc, program), nil
}

// ofAgents returns the namespace of the agents and the controller.
func (c *clusterFlags) ofAgents() string {
	if c.namespace != "" {
		return c.namespace
	}
	if own, err := os.ReadFile(namespaceFile); err == nil && len(own) > 0 {
		return strings.TrimSpace(string(own))
	}
	return "diapause-system"
}
