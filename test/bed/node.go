package bed

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// nodeDevice is a node's network device.
const nodeDevice = "eth0"

// Node is a node of a cluster, in namespaces of its own, where all paths are the
// production default. Its methods may be called from several goroutines, unless
// they start or end a daemon.
type Node struct {
	Name string
	// IP is the node's address, which can be dialled from the program.
	IP string
	// PodCIDR is the range of its pods' addresses, which can be dialled, too.
	PodCIDR string
	// CgroupParent is the cgroup below which all pods are.
	CgroupParent string
	// Runtime is containerd's CRI.
	Runtime    cri.RuntimeServiceClient
	Containerd *Containerd
	Kubelet    *Daemon
	Proxy      *Daemon // nil: the cluster has no Services

	first *exec.Cmd // the node's first process
	space space
	conn  *grpc.ClientConn
}

// serve is the first process in the PID namespace of a node. It furnishes the
// node and reaps every orphan. It ends only by a signal, and all in the node
// with it.
func (t ticket) serve() (int, error) {
	orphans := make(chan os.Signal, 1)
	signal.Notify(orphans, syscall.SIGCHLD)
	if err := t.furnish(); err != nil {
		return 1, err
	}
	if _, err := os.Stdout.WriteString("furnished\n"); err != nil {
		return 1, err
	}
	for range orphans {
		for {
			pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if errors.Is(err, syscall.EINTR) {
				continue
			}
			if pid <= 0 || err != nil {
				break
			}
		}
	}
	return 0, nil
}

// newNode makes a node, with its network but with no daemons. The first is 1.
func newNode(number int) (*Node, error) {
	name := fmt.Sprint("node", number)
	t := *here
	t.Role, t.Name, t.Scratch, t.IP = roleNode, name, filepath.Join(here.Scratch, name), fmt.Sprint("10.77.0.", 10+number)
	n := &Node{
		Name: name, IP: t.IP, PodCIDR: fmt.Sprintf("10.77.%d.0/24", 10+number), CgroupParent: "/" + here.Name + "/" + name,
	}
	if err := os.RemoveAll(t.Scratch); err != nil { // of a node of that name before
		return nil, fmt.Errorf("bed: %w", err)
	}
	if err := makeDisks(t.Scratch); err != nil {
		return nil, fmt.Errorf("bed: %w", err)
	}
	if err := makeCgroup(n.CgroupParent[1:]); err != nil {
		return nil, fmt.Errorf("bed: %w", err)
	}
	if err := n.begin(t); err != nil {
		return nil, fmt.Errorf("bed: start %s: %w", name, err)
	}
	n.space = space{root: fmt.Sprintf("/proc/%d/root", n.pid()), logs: filepath.Join(t.Scratch, "log"), start: n.start}
	if err := n.wire(); err != nil {
		return nil, errors.Join(err, n.Crash())
	}
	return n, nil
}

// begin starts the first process of the node, and returns when it has furnished
// the node.
func (n *Node) begin(t ticket) error {
	cmd, err := t.command()
	if err != nil {
		return err
	}
	cmd.Stdin, cmd.Stdout = nil, nil
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return errors.Join(err, cmd.Wait())
	}
	n.first = cmd
	return nil
}

// pid is that of the node's first process.
func (n *Node) pid() int { return n.first.Process.Pid }

// Path is where the file at path in the node is to be seen from the program, or
// where its socket can be dialled, as long as the node is there.
func (n *Node) Path(path string) string { return n.space.path(path) }

// Run runs a command in the node, in the way of its own Run: it is a child of the
// program like any other.
func (n *Node) Run(cmd *exec.Cmd) error {
	if err := n.start(cmd); err != nil {
		return err
	}
	return cmd.Wait()
}

func (n *Node) start(cmd *exec.Cmd) error { return inNamespaces(n.pid(), cmd.Start) }

// Exec runs a command in the node, and returns what it prints.
func (n *Node) Exec(ctx context.Context, name string, args ...string) (string, error) {
	return output(exec.CommandContext(ctx, name, args...), n.Run)
}

// StartAgent starts the agent in the node, in the way of [Bed.StartAgent]. It
// ends with the node.
func (n *Node) StartAgent(ctx context.Context, args ...string) (*Agent, error) {
	return startAgent(ctx, n.space, args)
}

// startContainerd starts the node's containerd and gives it the test images.
func (n *Node) startContainerd(ctx context.Context, o Options) (err error) {
	if err := writeConfig(n.space, o, n.PodCIDR); err != nil {
		return err
	}
	if n.conn, err = dial(n.space.path(ContainerdSocket)); err != nil {
		return err
	}
	n.Runtime = cri.NewRuntimeServiceClient(n.conn)
	if n.Containerd, err = startContainerd(ctx, n.space, n.conn); err != nil {
		return err
	}
	return n.Containerd.importImages(ctx)
}

// Crash ends the node with all that runs in it, at once and for good, as if the
// machine had lost its power. The API server still knows the node.
func (n *Node) Crash() error {
	if n.conn != nil {
		n.conn.Close() // whatever it says, the connection is gone
	}
	n.first.Process.Kill() // fails only if it is gone already
	thaw(n.CgroupParent[1:])
	n.first.Wait() // says that it was killed
	err := errors.Join(n.unplug(), removeCgroups(n.CgroupParent[1:]))
	if err != nil {
		err = fmt.Errorf("bed: crash %s: %w", n.Name, err)
	}
	return err
}

// Agents returns the process ids of Diapause's agents on the node.
func (n *Node) Agents(ctx context.Context) ([]string, error) { return n.programs(ctx, "!") }

// Controllers returns the process ids of Diapause's controllers on the node. They are the same program as the agents.
func (n *Node) Controllers(ctx context.Context) ([]string, error) { return n.programs(ctx, "") }

// programs returns the process ids of Diapause's daemons that are controllers or, with not set to "!", are not. A
// process that is ending has no command line any more, and is neither.
func (n *Node) programs(ctx context.Context, not string) ([]string, error) {
	out, err := n.Exec(ctx, "sh", "-c", `for p in $(pidof diapause-agent); do
		args=$(tr '\0' '\n' < /proc/$p/cmdline 2> /dev/null)
		if [ "$args" ] && `+not+` echo "$args" | grep -qx controller; then echo $p; fi; done; true`)
	return strings.Fields(out), err
}
