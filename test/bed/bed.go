package bed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"diapause.dev/test/tools"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var errOutside = errors.New("bed: nothing can be started outside of a bed; call Enter or Main first")

// Options say how a bed differs from the usual.
type Options struct {
	// Runsc are further runsc flags of the handler [Diapause], by name without
	// dashes, or other values of the usual ones.
	Runsc map[string]string
	// DualStack has pods get an address of IPv6, too.
	DualStack bool
	// StatsPeriod is how often containerd asks for the statistics of all pods, as Go writes a duration. Each time costs
	// a call of runsc for each container. Empty is containerd's default, a second.
	StatsPeriod string
}

// Bed is a node with containerd running. Its methods may be called from several
// goroutines, but for StartAgent and Close.
type Bed struct {
	// Bin are the programs of this bed, which are also in the PATH.
	Bin tools.Bin
	// Runtime is containerd's CRI.
	Runtime cri.RuntimeServiceClient
	// Containerd is the daemon.
	Containerd *Containerd
	// CgroupParent is the cgroup below which all pods are.
	CgroupParent string

	conn   *grpc.ClientConn
	agents []*Agent
}

// Start starts containerd with the runtime handlers [Runc] and [Diapause] and
// the images of package images, and returns when it is ready for pods. What
// containerd keeps on disk stays from one bed of the program to the next: Close
// has removed its pods, and Start makes its images what they were. It fails if
// [Enter] has not been called. A program has one bed at a time.
func Start(ctx context.Context, o Options) (*Bed, error) {
	if here == nil {
		return nil, errOutside
	}
	if err := errors.Join(forgetLogs(), writeConfig(base, o, podCIDR)); err != nil {
		return nil, err
	}
	conn, err := dial(ContainerdSocket)
	if err != nil {
		return nil, err
	}
	b := &Bed{Bin: here.Bin, Runtime: cri.NewRuntimeServiceClient(conn), CgroupParent: "/" + here.Name, conn: conn}
	if b.Containerd, err = startContainerd(ctx, base, conn); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if err := b.Containerd.keepImages(ctx); err != nil {
		b.Containerd.Kill()
		return nil, errors.Join(err, conn.Close())
	}
	return b, nil
}

// forgetLogs removes the logs of the daemons of a former bed.
func forgetLogs() error {
	for _, name := range []string{containerdName, agentName} {
		if err := os.RemoveAll(base.log(name)); err != nil {
			return fmt.Errorf("bed: %w", err)
		}
	}
	return nil
}

// dial makes a connection to who serves gRPC at a socket.
func dial(socket string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("bed: dial %s: %w", socket, err)
	}
	return conn, nil
}

// removeTime bounds the removal of all pods of a bed.
const removeTime = 2 * time.Minute

// Close removes all pods and stops the agents and containerd. Pods that it cannot
// remove are an error, and are ended by force. After it, Start may be called again.
func (b *Bed) Close(ctx context.Context) error {
	removal, cancel := context.WithTimeout(ctx, removeTime)
	defer cancel()
	left := b.removePods(removal)
	for _, a := range b.agents {
		a.Kill()
	}
	err := errors.Join(left, b.Containerd.Stop(ctx), b.conn.Close())
	if left != nil {
		err = errors.Join(err, wipe())
	}
	return err
}

// removePods removes all pods, at once, since most of the time of each is waiting.
func (b *Bed) removePods(ctx context.Context) error {
	pods, err := b.Runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return fmt.Errorf("bed: list pods: %w", err)
	}
	failed := make([]error, len(pods.Items))
	var removed sync.WaitGroup
	for i, p := range pods.Items {
		removed.Go(func() { failed[i] = b.RemovePod(ctx, p.Id) })
	}
	removed.Wait()
	return errors.Join(failed...)
}
