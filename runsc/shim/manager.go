package shim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"diapause.dev/runsc"
	"diapause.dev/runsc/shim/limits"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/shim"
	"github.com/containerd/containerd/v2/pkg/sys"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	gvisor "gvisor.dev/gvisor/pkg/shim/v1"
)

// RuntimeType is the name by which containerd knows this shim.
const RuntimeType = "io.containerd.diapause.v1"

// oomScore is the lowest score with which the OOM killer can still choose the shim.
const oomScore = -999

// manager starts and stops shim processes. Everything except Start and Stop is gVisor's own.
type manager struct{ shim.Manager }

// NewManager returns the manager to run the shim with. It is gVisor's, except for the OOM score of a new process: if
// the node does not let the shim lower it, gVisor's manager refuses to start any container. This one writes a warning
// to containerd's log and goes on.
func NewManager() shim.Manager {
	return manager{gvisor.NewShimManager(RuntimeType)}
}

// Start implements shim.Manager. It runs in the bundle's directory, in a short-lived process that answers containerd
// on its standard streams.
func (manager) Start(ctx context.Context, id string, opts shim.StartOpts) (shim.BootstrapParams, error) {
	p, err := readPod(".")
	if err != nil {
		return shim.BootstrapParams{}, err
	}
	address, err := shim.SocketAddress(ctx, opts.Address, socketName(id, p), opts.Debug)
	if err != nil {
		return shim.BootstrapParams{}, fmt.Errorf("shim socket: %w", err)
	}
	params := shim.BootstrapParams{Version: 2, Address: address, Protocol: "ttrpc"}
	socket, err := listen(address)
	if err != nil {
		return shim.BootstrapParams{}, err
	}
	if socket == nil { // the shim of this pod serves already
		return params, writeAddress(address)
	}
	if p.sandbox != "" && !p.isSandbox {
		return shim.BootstrapParams{}, errors.Join(fmt.Errorf("container %s: the shim of its sandbox %s has ended, or was "+
			"started by another version of Diapause: create the pod again", id, p.sandbox), socket.Close())
	}
	// On success the listener stays open: closing it would remove the socket's file.
	if err := launch(ctx, id, opts, socket, address); err != nil {
		return shim.BootstrapParams{}, errors.Join(err, socket.Close())
	}
	return params, nil
}

// stopLimit bounds how long gVisor's shim may take to clean up. Containerd kills all of it after five seconds
// (io.containerd.timeout.shim.cleanup).
const stopLimit = 4 * time.Second

// Stop implements shim.Manager. If a container's shim is gone, containerd calls Stop in the bundle's directory to
// clean up. Stop also ends what runsc does not know, and puts back the limits that the shim had raised: at once,
// because the rest may take longer than containerd waits, and again once the sandbox has ended, because until then it
// may use more than it may have.
func (m manager) Stop(ctx context.Context, id string) (shim.StopStatus, error) {
	_ = limits.PutBack(".") // what cannot be put back yet is tried again below
	limited, cancel := context.WithTimeout(ctx, stopLimit)
	defer cancel()
	status, err := m.Manager.Stop(limited, id)
	if left := runsc.KillOrphans(id); left != nil { // the shim's end has killed the runsc that was creating it
		note("processes of the container are left", "container", id, "error", left)
	}
	if undone := limits.PutBack("."); undone != nil {
		note("limits stay raised", "sandbox", id, "error", undone)
	}
	return status, err
}

// socketName returns what the name of the socket is made from by which container id is served: the pod, or the
// container if it belongs to none. A shim that serves one container of a pod has a socket of another name.
func socketName(id string, p pod) string {
	if p.sandbox == "" {
		return id
	}
	return "pod " + p.sandbox
}

// listen makes the socket at address. It returns nil if a living shim listens there.
func listen(address string) (*net.UnixListener, error) {
	socket, err := shim.NewSocket(address)
	if err == nil {
		return socket, nil
	}
	if !shim.SocketEaddrinuse(err) {
		return nil, fmt.Errorf("make shim socket: %w", err)
	}
	if !deserted(address) {
		return nil, nil
	}
	if err := shim.RemoveSocket(address); err != nil {
		return nil, fmt.Errorf("remove the shim socket of a dead shim: %w", err)
	}
	if socket, err = shim.NewSocket(address); err != nil {
		return nil, fmt.Errorf("make shim socket again: %w", err)
	}
	return socket, nil
}

// connectLimit bounds how long a connection to a shim may take. It takes no time: who listens need not accept it.
const connectLimit = 10 * time.Second

// deserted reports whether no process listens at a socket. Only the kernel's refusal says so. On a busy node a
// connection may be late, and one to a busy shim finds a full queue: containerd's CanConnect takes both for its end.
func deserted(address string) bool {
	conn, err := shim.AnonDialer(address, connectLimit)
	if err == nil {
		conn.Close()
		return false
	}
	return errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ENOENT)
}

// launch starts the process that serves from now on, and writes the files by which containerd finds it.
func launch(ctx context.Context, id string, opts shim.StartOpts, socket *net.UnixListener, address string) error {
	if err := writeAddress(address); err != nil {
		return err
	}
	cmd, err := command(ctx, id, opts)
	if err != nil {
		return err
	}
	f, err := socket.File()
	if err != nil {
		return fmt.Errorf("shim socket: %w", err)
	}
	defer f.Close()
	cmd.ExtraFiles = []*os.File{f}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start shim: %w", err)
	}
	if err := shim.WritePidFile("shim.pid", cmd.Process.Pid); err != nil {
		return errors.Join(fmt.Errorf("write shim.pid: %w", err), cmd.Process.Kill(), cmd.Wait())
	}
	if err := sys.SetOOMScore(cmd.Process.Pid, oomScore); err != nil {
		note("the shim keeps the OOM score of containerd", "container", id, "wanted", oomScore, "error", err)
	}
	// The new process outlives this one, which ends once it has answered. So nothing waits for it here.
	return cmd.Process.Release()
}

func command(ctx context.Context, id string, opts shim.StartOpts) (*exec.Cmd, error) {
	namespace, err := namespaces.NamespaceRequired(ctx)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args := []string{ServeAction, "-namespace", namespace, "-address", opts.Address, "-id", id}
	if opts.Debug {
		args = append(args, "-debug")
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=2")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd, nil
}

func writeAddress(address string) error {
	if err := os.WriteFile("address", []byte(address), 0o644); err != nil {
		return fmt.Errorf("write the shim's address: %w", err)
	}
	return nil
}

// note writes a warning to containerd's log through the bundle's log pipe. Standard error would corrupt the answer,
// because containerd takes it for a part of the answer.
func note(message string, keys ...any) {
	f, err := os.OpenFile("log", os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer f.Close()
	slog.New(slog.NewTextHandler(f, nil)).With("runtime", RuntimeType).Warn(message, keys...)
}

// spec is the part of a bundle's config.json that the shim reads.
type spec struct {
	Annotations map[string]string `json:"annotations"`
	Linux       struct {
		CgroupsPath string                 `json:"cgroupsPath"`
		Namespaces  []specs.LinuxNamespace `json:"namespaces"`
	} `json:"linux"`
}

// readPod reads the container's place in its pod from the bundle's config.json.
func readPod(bundle string) (pod, error) {
	f, err := os.Open(bundle + "/config.json")
	if err != nil {
		return pod{}, fmt.Errorf("read OCI spec: %w", err)
	}
	defer f.Close()
	var s spec
	if err := json.NewDecoder(f).Decode(&s); err != nil {
		return pod{}, fmt.Errorf("read OCI spec %s: %w", f.Name(), err)
	}
	p := podOf(s.Annotations)
	p.cgroup = s.Linux.CgroupsPath
	for _, n := range s.Linux.Namespaces {
		if n.Type == specs.NetworkNamespace {
			p.network = n.Path
		}
	}
	return p, nil
}
