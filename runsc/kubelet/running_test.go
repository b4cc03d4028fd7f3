package kubelet

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"diapause.dev/test/privileged"
)

// fakeProc is a proc file system that a test writes.
type fakeProc struct {
	*testing.T
	procfs
}

// newFakeProc returns one with the node's first process.
func newFakeProc(t *testing.T) fakeProc {
	f := fakeProc{T: t, procfs: procfs{dir: t.TempDir(), port: port}}
	f.write("1", "comm", "systemd")
	f.write("1", "cgroup", "0::/init.scope")
	f.write("1", "net/tcp", "  sl  local_address rem_address   st")
	return f
}

func (f fakeProc) write(pid, file, text string) {
	f.Helper()
	path := filepath.Join(f.dir, pid, file)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		f.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
		f.Fatal(err)
	}
}

// add adds a process in the network namespace of process like, which has a socket open.
func (f fakeProc) add(pid, comm, cgroup, like string, inode int) {
	f.Helper()
	f.write(pid, "comm", comm)
	f.write(pid, "cgroup", "0::"+cgroup)
	f.write(pid, "net/x", "")
	if err := os.Link(filepath.Join(f.dir, like, "net/tcp"), filepath.Join(f.dir, pid, "net/tcp")); err != nil {
		f.Fatal(err)
	}
	f.write(pid, "fd/x", "")
	if err := os.Symlink(fmt.Sprintf("socket:[%d]", inode), filepath.Join(f.dir, pid, "fd/9")); err != nil {
		f.Fatal(err)
	}
}

// addPod adds the first process of a pod with a network of its own.
func (f fakeProc) addPod(pid, comm, cgroup string, inode int) {
	f.Helper()
	f.write("pod"+pid, "net/tcp", "")
	f.add(pid, comm, cgroup, "pod"+pid, inode)
}

// listen has sockets listen: each is a local address with its port in the kernel's notation, and an inode.
func (f fakeProc) listen(sockets ...string) {
	f.Helper()
	var text strings.Builder
	text.WriteString("  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n")
	for i, s := range sockets {
		address, inode, _ := strings.Cut(s, " ")
		fmt.Fprintf(&text, "%4d: %s 00000000:0000 0A 0:0 00:0 0 0 0 %s 1 0\n", i, address, inode)
	}
	// A connection from the kubelet's port to the socket of a stranger.
	fmt.Fprintf(&text, "%4d: 0100007F:280A 0100007F:0050 01 0:0 00:0 0 0 0 666 1 0\n", len(sockets))
	f.write("1", "net/tcp", text.String())
}

func (f fakeProc) want(want string) {
	f.Helper()
	if pid, err := f.kubelet(); pid != want || err != nil {
		f.Errorf("the kubelet is %q, %v; want %q", pid, err, want)
	}
}

const (
	hostPod = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-" +
		"pod6ba7b810_9dad_11d1_80b4_00c04fd430c8.slice/cri-containerd-0123.scope"
	seenByAgent = "/../../pod6ba7b810-9dad-11d1-80b4-00c04fd430c8/0123" // which has a cgroup namespace of its own
	staticPod   = "/kubepods/burstable/pod0123456789abcdef0123456789abcdef/0123"
)

func TestKubelet(t *testing.T) {
	t.Run("by its name", func(t *testing.T) {
		f := newFakeProc(t)
		f.add("43", "kubelet-x", "/system.slice/x.service", "1", 1)
		f.want("")
		f.add("42", "kubelet", "/podruntime/kubelet", "1", 1)
		f.write("self", "comm", "kubelet")
		f.want("42")
	})
	t.Run("in another program", func(t *testing.T) {
		for _, address := range []string{"00000000:280A", "00000000000000000000000000000000:280A"} {
			f := newFakeProc(t)
			f.add("41", "sshd", "/system.slice/ssh.service", "1", 666)
			f.add("42", "k3s-server", "/system.slice/k3s.service", "1", 7)
			f.want("")
			f.listen("00000000:0016 5", address+" 7", "00000000:1F90 8")
			f.want("42")
		}
	})
	t.Run("on a node that is a container in a pod", func(t *testing.T) {
		f := newFakeProc(t)
		f.write("1", "cgroup", "0::"+staticPod+"/init.scope")
		f.add("42", "kubelet", staticPod+"/system.slice/kubelet.service", "1", 1)
		f.want("42")
	})
	if _, err := (procfs{dir: filepath.Join(t.TempDir(), "none")}).kubelet(); err == nil {
		t.Error("no error without a proc file system")
	}
}

// TestHostileKubelet has processes of pods call themselves kubelet, and listen at its port. None is taken for it,
// whether the node has a kubelet or not.
func TestHostileKubelet(t *testing.T) {
	f := newFakeProc(t)
	f.addPod("20", "kubelet", staticPod, 1)
	f.addPod("21", "kubelet", "/k8s.io/0123", 2)
	f.addPod("22", "k3s-server", hostPod, 3)
	f.add("23", "kubelet", hostPod, "1", 4)
	f.add("24", "kubelet", seenByAgent, "1", 5)
	f.add("25", "nginx", staticPod, "1", 6)
	f.listen("00000000:280A 6", "0100007F:280A 4")
	f.want("")
	f.add("99", "kubelet", "/system.slice/kubelet.service", "1", 7)
	f.want("99")
}

// TestHostileNamesake looks at real processes: this one, which listens, and one in a network namespace of its own.
func TestHostileNamesake(t *testing.T) {
	privileged.Need(t, "a network namespace")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := procfs{dir: "/proc", port: uint16(l.Addr().(*net.TCPAddr).Port)}
	self := strconv.Itoa(os.Getpid())
	if p.started(self) == "" || p.started("0") != "" {
		t.Errorf("this process was started at %q", p.started(self))
	}
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(sleep, "infinity")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	if p.isNodes(strconv.Itoa(cmd.Process.Pid)) {
		t.Error("a process in a network namespace of its own is taken for the node's")
	}
	own, _ := p.network(self)
	if init, _ := p.network(first); own != init {
		return // the test itself is in another one
	}
	if !p.holds(self, p.listeners()) {
		t.Errorf("sockets %v: this process listens at port %d", p.listeners(), p.port)
	}
}
