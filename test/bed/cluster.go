package bed

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClusterOptions say what cluster is wanted.
type ClusterOptions struct {
	// Nodes is how many there are; one if it is 0.
	Nodes int
	// Node is how each differs from the usual.
	Node Options
	// Services has each node run kube-proxy. The program needs the extra [tools.KubeProxy] for it.
	Services bool
}

// Cluster is a Kubernetes cluster: the control plane in the bed's own namespaces,
// and nodes with containerd and kubelet, each in namespaces of its own. Nodes and
// pods and the program can dial each other's addresses, and pods the Service
// "kubernetes". Other Services are there if they are wanted, and no DNS. Pods get the images of
// package images without a registry, and by the RuntimeClass [Diapause] our
// runtime. kubectl's exec, logs and port-forward work.
type Cluster struct {
	*API
	Controllers, Scheduler *Daemon

	options ClusterOptions
	nodes   []*Node
}

// StartCluster starts a cluster, and returns when its nodes are ready for pods.
// A program has one at a time, and no [Bed] or [API] besides.
func StartCluster(ctx context.Context, o ClusterOptions) (*Cluster, error) {
	if here == nil {
		return nil, errOutside
	}
	a, err := newAPI()
	if err != nil {
		return nil, err
	}
	c := &Cluster{API: a, options: o}
	c.Controllers = &Daemon{space: base, name: "kube-controller-manager", args: controllerArgs(), up: healthy(10257)}
	c.Scheduler = &Daemon{space: base, name: "kube-scheduler", args: schedulerArgs(), up: healthy(10259)}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	for range max(1, c.options.Nodes) {
		if _, err := c.newNode(); err != nil {
			return err
		}
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.API.start(groupCtx) })
	group.Go(func() error { return c.startRuntimes(groupCtx, c.nodes) })
	if err := group.Wait(); err != nil {
		return err
	}
	group, groupCtx = errgroup.WithContext(ctx)
	group.Go(func() error { return c.Controllers.Start(groupCtx) })
	group.Go(func() error { return c.Scheduler.Start(groupCtx) })
	for _, n := range c.nodes {
		group.Go(func() error { return n.join(groupCtx) })
	}
	group.Go(func() error { return c.createRuntimeClass(groupCtx) })
	if err := group.Wait(); err != nil {
		return err
	}
	return c.waitReady(ctx)
}

// newNode makes a node of the cluster. Nothing runs on it yet.
func (c *Cluster) newNode() (*Node, error) {
	n, err := newNode(len(c.nodes) + 1)
	if err != nil {
		return nil, err
	}
	c.nodes = append(c.nodes, n)
	if c.options.Services {
		if err := n.prepareProxy(c.authority); err != nil {
			return nil, err
		}
	}
	return n, n.prepareKubelet(c.authority)
}

// join starts what makes a node one of the cluster.
func (n *Node) join(ctx context.Context) error {
	if err := n.Kubelet.Start(ctx); err != nil || n.Proxy == nil {
		return err
	}
	return n.Proxy.Start(ctx)
}

// AddNode adds a node to the cluster, and returns it when it is ready for pods. It calls furnish when the node's
// containerd runs, before the API server knows the node.
func (c *Cluster) AddNode(ctx context.Context, furnish func(*Node) error) (*Node, error) {
	n, err := c.newNode()
	if err != nil {
		return nil, err
	}
	if err := c.startRuntimes(ctx, []*Node{n}); err != nil {
		return nil, err
	}
	if err := furnish(n); err != nil {
		return nil, err
	}
	if err := n.join(ctx); err != nil {
		return nil, err
	}
	return n, n.Kubelet.ready(ctx, func(ctx context.Context) error { return c.nodeReady(ctx, n.Name) })
}

// LoseNode crashes the node that was added last. The API server still knows the node, the cluster's methods do not.
func (c *Cluster) LoseNode() error {
	last := len(c.nodes) - 1
	n := c.nodes[last]
	c.nodes = c.nodes[:last]
	return n.Crash()
}

// startRuntimes starts the containerd of nodes.
func (c *Cluster) startRuntimes(ctx context.Context, nodes []*Node) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, n := range nodes {
		group.Go(func() error { return n.startContainerd(ctx, c.options.Node) })
	}
	return group.Wait()
}

func (c *Cluster) createRuntimeClass(ctx context.Context) error {
	class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: Diapause}, Handler: Diapause}
	if _, err := c.Client.NodeV1().RuntimeClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("bed: create the RuntimeClass %s: %w", Diapause, err)
	}
	return nil
}

// waitReady waits until pods can run on every node.
func (c *Cluster) waitReady(ctx context.Context) error {
	for _, n := range c.nodes {
		ready := func(ctx context.Context) error { return c.nodeReady(ctx, n.Name) }
		if err := n.Kubelet.ready(ctx, ready); err != nil {
			return err
		}
	}
	return c.Controllers.ready(ctx, func(ctx context.Context) error {
		_, err := c.Client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		return err // every pod has it
	})
}

// nodeReady reports why no pod can run on the node of that name.
func (c *Cluster) nodeReady(ctx context.Context, name string) error {
	n, err := c.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if len(n.Spec.Taints) > 0 {
		return fmt.Errorf("%s has taints: %v", name, n.Spec.Taints)
	}
	for _, condition := range n.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("%s is not ready: %v", name, n.Status.Conditions)
}

// Node returns the node of that number; the first is 0.
func (c *Cluster) Node(i int) *Node { return c.nodes[i] }

// Nodes returns all nodes.
func (c *Cluster) Nodes() []*Node { return c.nodes }

// Import gives every node the images of an OCI archive.
func (c *Cluster) Import(ctx context.Context, archive string) error {
	for _, n := range c.nodes {
		if err := n.Containerd.Import(ctx, archive); err != nil {
			return err
		}
	}
	return nil
}

// Close ends the control plane and the nodes with all that runs in them. After
// it, StartCluster may be called again.
func (c *Cluster) Close() error {
	var err error
	for _, n := range c.nodes {
		err = errors.Join(err, n.Crash())
	}
	c.Scheduler.Kill()
	c.Controllers.Kill()
	c.API.Close()
	return err
}

func controllerArgs() []string {
	return []string{
		"--kubeconfig=" + controllerConfig, "--leader-elect=false", "--use-service-account-credentials=true",
		"--profiling=false",
		"--service-account-private-key-file=" + tokenKey, "--root-ca-file=" + caCert,
		"--cluster-signing-cert-file=" + caCert, "--cluster-signing-key-file=" + caKey,
	}
}

func schedulerArgs() []string {
	return []string{"--kubeconfig=" + schedulerConfig, "--leader-elect=false", "--profiling=false"}
}
