package kubelet

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"diapause.dev/test/privileged"
)

// nodeIP is an address of the node of this test.
const nodeIP = "192.0.2.7"

// daemon is a process of the node of this test.
type daemon struct {
	Comm   string // what the kernel calls it: the name of the file that is executed
	Argv   string // what it calls itself, in one argument, as programs do that write over theirs
	Listen string // an address; empty: none
	Cgroup string // relative to the test's own
	Apart  bool   // in a network namespace of its own
}

// impostors look like a kubelet, and are processes of pods or in a network of their own. They listen at the kubelet's
// port, too.
var impostors = []daemon{
	{Comm: "kubelet", Argv: "kubelet", Listen: "127.0.0.1:10250", Cgroup: hostPod},
	{Comm: "k3s-server", Argv: "/usr/local/bin/k3s server", Listen: "127.0.0.2:10250", Cgroup: staticPod},
	{Comm: "kubelet", Argv: "kubelet", Listen: ":10250", Cgroup: "/system.slice/docker.service", Apart: true},
}

// TestHostileDistributions finds the kubelets of Kubernetes distributions among real processes. These have the names,
// arguments, cgroups and listening addresses of the distributions. Pods pass for none of them.
func TestHostileDistributions(t *testing.T) {
	privileged.Need(t, "namespaces and cgroups")
	for _, d := range []struct{ name, comm, argv, cgroup string }{
		{"kubeadm", "kubelet", "/usr/bin/kubelet --config=x", "/system.slice/kubelet.service"},
		{"K3s server", "k3s-server", "/usr/local/bin/k3s server", "/system.slice/k3s.service"},
		{"K3s agent", "k3s-agent", "/usr/local/bin/k3s agent", "/system.slice/k3s-agent.service"},
		{"K3s, whose kubelet has a cgroup", "k3s-server", "/usr/local/bin/k3s server", "/k3s"},
		{"RKE2", "kubelet", "kubelet --volume-plugin-dir=x", "/system.slice/rke2-server.service"},
		{"MicroK8s", "kubelite", "/snap/microk8s/1/kubelite", "/system.slice/snap.microk8s.daemon-kubelite.service"},
		{"k0s", "kubelet", "/var/lib/k0s/bin/kubelet", "/system.slice/k0sworker.service"},
	} {
		t.Run(d.name, func(t *testing.T) {
			kubelet := daemon{Comm: d.comm, Argv: d.argv, Listen: nodeIP + ":10250", Cgroup: d.cgroup}
			if found := onNode(t, append(impostors, kubelet)); found != d.argv {
				t.Errorf("the kubelet is %q, want %q", found, d.argv)
			}
		})
	}
	t.Run("none", func(t *testing.T) {
		if found := onNode(t, impostors); found != "" {
			t.Errorf("the kubelet is %q", found)
		}
	})
}

// The roles that this program plays for a test, if its environment says so.
const (
	roleVariable = "DIAPAUSE_TEST_KUBELET"
	roleDaemon   = "daemon "
)

func init() {
	role := os.Getenv(roleVariable)
	if role == "" {
		return
	}
	if err := play(role); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

func play(role string) error {
	if address, ok := strings.CutPrefix(role, roleDaemon); ok {
		return serve(address)
	}
	return beNode(role)
}

// onNode has a process begin a node with these daemons. It returns the arguments of what is taken for its kubelet.
func onNode(t *testing.T, daemons []daemon) string {
	t.Helper()
	root := filepath.Join(cgroupTop(t), fmt.Sprintf("diapause-kubelet-%d", os.Getpid()))
	t.Cleanup(func() { removeCgroups(t, root) })
	daemons = slices.Clone(daemons)
	for i := range daemons {
		daemons[i].Cgroup = filepath.Join(root, daemons[i].Cgroup)
		if err := os.MkdirAll(daemons[i].Cgroup, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	role, err := json.Marshal(daemons)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env, cmd.Dir = append(os.Environ(), roleVariable+"="+string(role)), t.TempDir()
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL,
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// cgroupTop returns the directory of a hierarchy of cgroups.
func cgroupTop(t *testing.T) string {
	t.Helper()
	for _, dir := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/pids"} {
		if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err == nil {
			return dir
		}
	}
	t.Fatal("there are no cgroups")
	return ""
}

// removeCgroups removes the cgroups below a directory, whose processes are dead.
func removeCgroups(t *testing.T, root string) {
	var all []string
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			all = append([]string{path}, all...)
		}
		return err
	})
	for _, dir := range all {
		err = errors.Join(err, syscall.Rmdir(dir))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// beNode is the first process of a node. It starts the daemons, and prints the arguments of the kubelet.
func beNode(role string) error {
	var daemons []daemon
	lo, err := netlink.LinkByName("lo")
	err = errors.Join(err, json.Unmarshal([]byte(role), &daemons),
		syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""), syscall.Mount("proc", "/proc", "proc", 0, ""))
	if err != nil {
		return err
	}
	address, err := netlink.ParseAddr(nodeIP + "/32")
	if err := errors.Join(err, netlink.LinkSetUp(lo), netlink.AddrAdd(lo, address)); err != nil {
		return err
	}
	for _, d := range daemons {
		if err := d.start(); err != nil {
			return fmt.Errorf("%s: %w", d.Comm, err)
		}
	}
	pid, ok, err := new(Finder).Running()
	if err != nil || !ok {
		return err
	}
	argv, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	fmt.Print(strings.Trim(string(argv), "\x00"))
	return err
}

// start starts a daemon, and returns when it listens. It goes on until the node's first process ends.
func (d daemon) start() error {
	dir, err := os.MkdirTemp(".", "bin-")
	if err != nil {
		return err
	}
	program, err := os.Readlink("/proc/self/exe")
	path := filepath.Join(dir, d.Comm)
	if err := errors.Join(err, os.Symlink(program, path)); err != nil {
		return err
	}
	cmd := exec.Command("./" + path)
	cmd.Args, cmd.Env = []string{d.Argv}, []string{roleVariable + "=" + roleDaemon + d.Listen}
	if d.Apart {
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	}
	says, err := cmd.StdoutPipe()
	if err := errors.Join(err, cmd.Start()); err != nil {
		return err
	}
	line, err := bufio.NewReader(says).ReadString('\n')
	if line != "ready\n" {
		return fmt.Errorf("it says %q: %w", line, err)
	}
	return os.WriteFile(filepath.Join(d.Cgroup, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0)
}

// serve listens until the process is killed.
func serve(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	defer l.Close()
	fmt.Println("ready")
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		c.Close()
	}
}
