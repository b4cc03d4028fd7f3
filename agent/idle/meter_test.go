package idle

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"diapause.dev/api/snapshot"
	"diapause.dev/cri"
	"diapause.dev/test/privileged"
)

// self is a Runtime with one pod, whose sandbox is this process.
type self struct{ pod cri.Pod }

func (s self) Find(context.Context, string) (*cri.Pod, error) { return &s.pod, nil }

func kernelOf(pod cri.Pod) Kernel {
	return Kernel{Runtime: self{pod}, Busy: func(sandbox string) bool { return sandbox == "busy" }}
}

// TestKernel reads the real counters of this process.
func TestKernel(t *testing.T) {
	pod := cri.Pod{ID: "busy", UID: someone.UID, Runtime: cri.RuntimeType, SandboxPID: os.Getpid()}
	g, err := kernelOf(pod).Open(t.Context(), someone)
	if err != nil {
		t.Fatal(err)
	}
	u, err := g.Read()
	if err != nil || u.CPU <= 0 || !g.Busy() {
		t.Errorf("%+v, busy %v, %v", u, g.Busy(), err)
	}
	if !u.Session.IsZero() {
		t.Errorf("a session at %v", u.Session)
	}
}

// TestKernelSession reads when a shim has said that the pod is used. What is said of pods that are gone is removed.
func TestKernelSession(t *testing.T) {
	pod := cri.Pod{ID: "here", UID: someone.UID, Runtime: cri.RuntimeType, SandboxPID: os.Getpid()}
	k := kernelOf(pod)
	k.Used = t.TempDir()
	g, err := k.Open(t.Context(), someone)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(-time.Minute).Truncate(time.Second)
	for _, name := range []string{"here", "gone"} {
		file := filepath.Join(k.Used, name)
		if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Chtimes(file, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	if err := Clean(k.Used, map[string]bool{"here": true}); err != nil {
		t.Error(err)
	}
	u, err := g.Read()
	if err != nil || !u.Session.Equal(at) {
		t.Errorf("%+v, %v, want a session at %v", u, err, at)
	}
	if left, err := os.ReadDir(k.Used); len(left) != 1 || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestKernelOfNoSandbox(t *testing.T) {
	pod := cri.Pod{ID: "a", UID: someone.UID, Runtime: cri.RuntimeType, SandboxPID: os.Getpid()}
	for name, tc := range map[string]struct {
		change func(*cri.Pod)
		want   error
	}{
		"another pod":     {func(p *cri.Pod) { p.UID = "other" }, errNoSandbox},
		"another runtime": {func(p *cri.Pod) { p.Runtime = "io.containerd.runc.v2" }, ErrNever},
		"no sandbox":      {func(p *cri.Pod) { p.SandboxPID = 0 }, errNoSandbox},
	} {
		p := pod
		tc.change(&p)
		if _, err := kernelOf(p).Open(t.Context(), snapshot.PodRef{UID: someone.UID}); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestReceivedByKernel: packets of IP count. What neighbors ask for addresses does not.
func TestReceivedByKernel(t *testing.T) {
	privileged.Need(t, "a network namespace")
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread ends with the goroutine, and so does its namespace
		if err := receivePackets(t); err != nil {
			t.Error(err)
		}
	}()
	<-done
}

// receivePackets has packets come for an interface of a new network namespace, from another one of it.
func receivePackets(t *testing.T) error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	dir := fmt.Sprintf("/proc/self/task/%d/net", unix.Gettid())
	if err := checkInterface(dir); !errors.Is(err, errNoInterface) {
		t.Errorf("with only a loopback: %v", err)
	}
	err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "node"}, PeerName: "pod"})
	if err != nil {
		return err
	}
	node, err1 := netlink.LinkByName("node")
	pod, err2 := netlink.LinkByName("pod")
	if err := errors.Join(err1, err2, checkInterface(dir)); err != nil {
		return err
	}
	four, six := netip.MustParsePrefix("192.0.2.1/24"), netip.MustParsePrefix("2001:db8::1/64")
	for _, a := range []netip.Prefix{four, six} {
		n := &net.IPNet{IP: a.Addr().AsSlice(), Mask: net.CIDRMask(a.Bits(), a.Addr().BitLen())}
		if err := netlink.AddrAdd(node, &netlink.Addr{IPNet: n, Flags: unix.IFA_F_NODAD}); err != nil {
			return err
		}
	}
	if err := errors.Join(netlink.LinkSetUp(node), netlink.LinkSetUp(pod)); err != nil {
		return err
	}
	for _, a := range []netip.Prefix{four, six} {
		gone, there := a.Addr().Next(), a.Addr().Next().Next()
		before, err := received(dir)
		if err != nil {
			return err
		}
		frames := framesOf(t, dir)
		for framesOf(t, dir) < frames+2 { // until a question was asked
			if err := errors.Join(sendTo(gone), t.Context().Err()); err != nil {
				return err
			}
			time.Sleep(10 * time.Millisecond)
		}
		if n, err := received(dir); n != before || err != nil {
			t.Errorf("questions for %s count as %d packets, %v", gone, n-before, err)
		}
		neighbor := &netlink.Neigh{
			LinkIndex: node.Attrs().Index, State: netlink.NUD_PERMANENT, IP: there.AsSlice(),
			HardwareAddr: pod.Attrs().HardwareAddr,
		}
		if err := netlink.NeighAdd(neighbor); err != nil {
			return err
		}
		for range 3 {
			if err := sendTo(there); err != nil {
				return err
			}
		}
		if n, err := received(dir); n != before+3 || err != nil {
			t.Errorf("3 packets to %s count as %d, %v", there, n-before, err)
		}
	}
	return nil
}

func sendTo(a netip.Addr) error {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 9)))
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Write([]byte("packet"))
	return err
}

// framesOf returns how many frames the interface pod of a network namespace has received.
func framesOf(t *testing.T, dir string) (n int) {
	text, err := os.ReadFile(filepath.Join(dir, "dev"))
	if err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); f[0] == "pod:" {
			n, err = strconv.Atoi(f[2])
			if err != nil {
				t.Error(err)
			}
		}
	}
	return n
}

// BenchmarkRead is what a second costs for each pod that is awake.
func BenchmarkRead(b *testing.B) {
	pod := cri.Pod{UID: someone.UID, Runtime: cri.RuntimeType, SandboxPID: os.Getpid()}
	g, err := kernelOf(pod).Open(b.Context(), someone)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := g.Read(); err != nil {
			b.Fatal(err)
		}
	}
}
