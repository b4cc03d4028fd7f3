package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/test/bed"
	"diapause.dev/test/images"
	"diapause.dev/test/tools"
)

const (
	bucket    = "snapshots"
	system    = "diapause-system"
	manifests = "../../manifests"
)

// cluster is a cluster with Diapause installed, and its object store. The agents may neither delete nor overwrite
// there; the controllers may.
type cluster struct {
	*bed.Cluster
	gcs     *bed.GCS
	agents  *objectCreator // their way to it
	client  client.WithWatch
	dynamic dynamic.Interface
}

func startCluster(ctx context.Context) (*cluster, error) {
	b, err := bed.StartCluster(ctx, bed.ClusterOptions{Nodes: 2, Services: true})
	if err != nil {
		return nil, err
	}
	c := &cluster{Cluster: b}
	if err := c.furnish(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Close ends the cluster and its object store.
func (c *cluster) Close() error {
	if c.agents != nil {
		c.agents.Close()
	}
	if c.gcs != nil {
		c.gcs.Kill()
	}
	return c.Cluster.Close()
}

func (c *cluster) furnish(ctx context.Context) (err error) {
	if c.gcs, err = bed.StartGCS(ctx, bucket); err != nil {
		return err
	}
	if c.agents, err = serveObjectCreator(c.gcs.Address); err != nil {
		return err
	}
	s := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(s), podsnapshotv1.AddToScheme(s)); err != nil {
		return err
	}
	if c.client, err = client.NewWithWatch(c.Config, client.Options{Scheme: s}); err != nil {
		return err
	}
	if c.dynamic, err = dynamic.NewForConfig(c.Config); err != nil {
		return err
	}
	if err := c.importAgent(ctx, images.Agent, nil); err != nil {
		return err
	}
	return c.install(ctx)
}

// importAgent gives the nodes an image of the agent, with other programs in the place of some.
func (c *cluster) importAgent(ctx context.Context, image string, instead map[string]string) error {
	return c.importAgentTo(ctx, c.Import, image, instead)
}

// importAgentTo is importAgent for those nodes whose method Import is given.
func (c *cluster) importAgentTo(ctx context.Context, to func(ctx context.Context, archive string) error, image string,
	instead map[string]string,
) error {
	archive, err := os.CreateTemp("", "agent-*.tar")
	if err != nil {
		return err
	}
	defer os.Remove(archive.Name())
	programs := map[string]string{tools.RunscFast: c.Bin.Path("runsc")} // nodes get the build that beds have
	maps.Copy(programs, instead)
	if err := errors.Join(images.WriteAgentAs(archive, image, c.Bin, programs), archive.Close()); err != nil {
		return err
	}
	return to(ctx, archive.Name())
}

// withReady has the agents keep pods that sleep ready to wake, which is off by default. So all that is tested of
// sleeping pods is tested of those, too.
const withReady = `[{"op": "add", "path": "/spec/template/spec/containers/0/args/-",
	"value": "--ready-memory=134217728"}]`

// install installs Diapause as a user does, tells the agents and the controller where the object store is, and says
// where snapshots go.
func (c *cluster) install(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var restarted []func() error
	for _, n := range c.Nodes() {
		if err := furnishSystemctl(ctx, n); err != nil {
			return err
		}
		restarted = append(restarted, n.Containerd.Supervise(ctx))
	}
	for _, args := range [][]string{
		{"apply", "--kustomize=" + manifests},
		{"--namespace=" + system, "set", "env", "daemonset/diapause-agent", "STORAGE_EMULATOR_HOST=" + c.agents.address},
		{"--namespace=" + system, "patch", "daemonset", "diapause-agent", "--type=json", "--patch=" + withReady},
		{"--namespace=" + system, "set", "env", "deployment/diapause-controller", "STORAGE_EMULATOR_HOST=" + c.gcs.Address},
	} {
		if _, err := c.Kubectl(ctx, args...); err != nil {
			return err
		}
	}
	if err := c.rollout(ctx); err != nil {
		return err
	}
	for _, wait := range restarted {
		if err := wait(); err != nil {
			return err
		}
	}
	return c.Apply(ctx, fmt.Sprintf(storageConfig, bucket))
}

const storageConfig = `
apiVersion: podsnapshot.gke.io/v1
kind: PodSnapshotStorageConfig
metadata: {name: storage}
spec: {snapshotStorageConfig: {gcs: {bucket: %s, path: e2e}}}
`

// rollout waits until every node has a ready agent of the newest kind, and until the controllers are of that, too.
func (c *cluster) rollout(ctx context.Context) error {
	for _, what := range []string{"daemonset/diapause-agent", "deployment/diapause-controller"} {
		_, err := c.Kubectl(ctx, "--namespace="+system, "rollout", "status", what, "--timeout=240s")
		if err != nil {
			return fmt.Errorf("%w\n%s", err, c.reportTo(context.WithoutCancel(ctx), logsDir, "rollout", system))
		}
	}
	return nil
}

// furnishSystemctl gives a node what it is asked to restart containerd with: a stand-in for
// systemctl that ends containerd, which [bed.Daemon.Supervise] starts again.
func furnishSystemctl(ctx context.Context, n *bed.Node) error {
	const dir = "/usr/local/sbin"
	if _, err := n.Exec(ctx, "mount", "-t", "tmpfs", "tmpfs", dir); err != nil {
		return err
	}
	script := "#!" + tools.Busybox + " sh\ntest \"$*\" = \"restart containerd\" && kill $(" + tools.Busybox +
		" pidof containerd)\n"
	return os.WriteFile(n.Path(filepath.Join(dir, "systemctl")), []byte(script), 0o755)
}
