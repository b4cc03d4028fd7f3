package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/test/bed"
	"diapause.dev/test/images"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Ports on which a pod listens: at every address, and at its loopback only.
const (
	openPort  = 8080
	innerPort = 8081
)

// listening returns a pod that answers at both ports.
func listening(name string, annotations map[string]string) bed.PodSpec {
	serve := fmt.Sprintf("mkdir /tmp/www; echo served > /tmp/www/state; exec httpd -f -p %d -h /tmp/www", openPort)
	return bed.PodSpec{Name: name, Annotations: annotations, Containers: []bed.Container{
		{Name: "a", Command: []string{"/bin/sh", "-c", serve}},
		{
			Name: "b", Image: images.Workload,
			Command: []string{"/bin/workload", "serve", "--mib=1", fmt.Sprintf("--listen=127.0.0.1:%d", innerPort)},
		},
	}}
}

// network returns the path of a pod's network namespace.
func network(t *testing.T, pod *bed.Pod) string {
	t.Helper()
	s, err := node.Runtime.PodSandboxStatus(limited(t),
		&criapi.PodSandboxStatusRequest{PodSandboxId: pod.ID, Verbose: true})
	if err != nil {
		t.Fatal(err)
	}
	var info struct {
		Spec specs.Spec `json:"runtimeSpec"`
	}
	if err := json.Unmarshal([]byte(s.Info["info"]), &info); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(info.Spec.Linux.Namespaces,
		func(n specs.LinuxNamespace) bool { return n.Type == specs.NetworkNamespace })
	if i < 0 {
		t.Fatal("the pod has no network namespace")
	}
	return info.Spec.Linux.Namespaces[i].Path
}

// dial connects to a port of localhost in a network namespace, as containerd does for kubectl
// port-forward.
func dial(ctx context.Context, path string, port int) (net.Conn, error) {
	type dialled struct {
		net.Conn
		error
	}
	done := make(chan dialled)
	go func() {
		conn, err := dialHere(ctx, path, port)
		done <- dialled{conn, err}
	}()
	d := <-done
	return d.Conn, d.error
}

// dialHere does the same on the thread of its goroutine, which ends afterwards.
func dialHere(ctx context.Context, path string, port int) (net.Conn, error) {
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	defer home.Close()
	there, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer there.Close()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		return nil, err
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp4", fmt.Sprintf("localhost:%d", port))
	if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
		runtime.UnlockOSThread()
	}
	return conn, err
}

// visitor returns a client whose connections all lead to a port of localhost in a network namespace.
func visitor(t *testing.T, path string, port int) *http.Client {
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn,
		error,
	) {
		return dial(ctx, path, port)
	}}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// visit requests the page that both ports of a pod serve.
func visit(ctx context.Context, c *http.Client) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/state", nil)
	if err != nil {
		return err
	}
	r, err := c.Do(req)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err == nil && (r.StatusCode != http.StatusOK || len(body) == 0) {
		err = fmt.Errorf("%s: %q", r.Status, body)
	}
	return err
}

// wantAnswers checks that both ports of a pod answer soon.
func wantAnswers(t *testing.T, path string) {
	t.Helper()
	wantAnswer(t, path, openPort)
	wantAnswer(t, path, innerPort)
}

func wantAnswer(t *testing.T, path string, port int) {
	t.Helper()
	ctx, c := limited(t), visitor(t, path, port)
	err := visit(ctx, c)
	for ; err != nil && ctx.Err() == nil; err = visit(ctx, c) {
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil {
		t.Fatalf("port %d: %v", port, err)
	}
}

// wantBroken checks that a port of a pod breaks connections.
func wantBroken(ctx context.Context, t *testing.T, path string, port int) {
	t.Helper()
	c, err := dial(ctx, path, port)
	if err == nil {
		defer c.Close()
		_, err = c.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("port %d: %v", port, err)
	}
}

// engaged returns a connection through gVisor on which a pod has begun to answer.
func engaged(ctx context.Context, t *testing.T, path string) net.Conn {
	t.Helper()
	c, err := dial(ctx, path, innerPort)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := fmt.Fprint(c, "GET /state HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return c
}

// visited runs a pod that listens. It returns the path of the pod's network namespace, and a connection through
// gVisor on which the pod has begun to answer.
func visited(ctx context.Context, t *testing.T, name string) (pod *bed.Pod, path string, open net.Conn) {
	t.Helper()
	pod = runPod(t, listening(name, nil))
	path = network(t, pod)
	wantAnswers(t, path)
	return pod, path, engaged(ctx, t, path)
}

// wantEnded checks that a connection through gVisor is over.
func wantEnded(t *testing.T, c net.Conn) {
	t.Helper()
	if _, err := io.Copy(io.Discard, c); err != nil {
		t.Errorf("the end of a connection by way of gVisor: %v", err)
	}
}

// TestForward connects to a pod through its loopback on the host: before and after the pod is saved with connections
// open, and to the pod restored from that.
func TestForward(t *testing.T) {
	ctx := limited(t)
	origin, path, open := visited(ctx, t, "origin")
	wantBroken(ctx, t, path, 9)
	dir := checkpoint(t, origin)
	wantEnded(t, open)
	wantAnswers(t, path)

	startAgent(t, decide(restoreFrom(dir)))
	branch := network(t, runPod(t, listening("branch", named)))
	wantAnswers(t, branch)
	wantBroken(ctx, t, branch, 9)
	wantAnswers(t, path)
}

// established reports whether a connection is still open at its other end.
func established(t *testing.T, c net.Conn) bool {
	t.Helper()
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var info *unix.TCPInfo
	refused := raw.Control(func(fd uintptr) {
		info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP,
			unix.TCP_INFO)
	})
	if err := errors.Join(refused, err); err != nil {
		t.Fatal(err)
	}
	return info.State == unix.BPF_TCP_ESTABLISHED
}

// TestForwardPaused pauses and saves a pod with an open connection. The connection through gVisor is over when the
// pod is paused, and no other is made until the pod runs on.
func TestForwardPaused(t *testing.T) {
	ctx := limited(t)
	pod, path, open := visited(ctx, t, "paused")
	asked := make(chan error, 1)
	go func() { asked <- client.Pause(ctx, pod.ID) }()
	for paused := false; !paused; {
		var err error
		if paused, err = client.Paused(ctx, pod.ID); err != nil {
			t.Fatal(err)
		}
	}
	if established(t, open) {
		t.Error("a connection by way of gVisor is open while its pod is paused")
	}
	if err := <-asked; err != nil {
		t.Fatal(err)
	}
	wantEnded(t, open)
	wantBroken(ctx, t, path, innerPort)
	checkpoint(t, pod)
	wantBroken(ctx, t, path, innerPort)
	if err := client.Resume(ctx, pod.ID); err != nil {
		t.Fatal(err)
	}
	wantAnswers(t, path)
}

// TestForwardRemoved removes a pod with an open connection.
func TestForwardRemoved(t *testing.T) {
	ctx, before := limited(t), processes(t)
	pod, err := node.RunPod(ctx, listening("removed", nil))
	if err != nil {
		t.Fatal(err)
	}
	path := network(t, pod)
	wantAnswers(t, path)
	engaged(ctx, t, path)
	var open []net.Conn
	for _, port := range []int{openPort, innerPort} {
		c, err := dial(ctx, path, port)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		open = append(open, c)
	}
	removePod(t, pod.ID)
	for _, c := range open {
		c.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("a connection outlasts its pod")
		}
	}
	if _, err := dial(ctx, path, openPort); err == nil {
		t.Error("the pod's network namespace is still there")
	}
	nothingLeft(t, before)
}

// TestForwardFiles saves root file systems alone. Open connections do not prevent that.
func TestForwardFiles(t *testing.T) {
	pod, path, open := visited(limited(t), t, "files")
	saveRootfs(t, pod)
	if _, err := open.Read(make([]byte, 1)); err != nil {
		t.Errorf("a connection by way of gVisor: %v", err)
	}
	wantAnswers(t, path)
}

// TestForwardSaving: the loopback of a sandbox that its processes may save at any time is not reached.
func TestForwardSaving(t *testing.T) {
	startAgent(t, decide(&localv1.AskRestoreResponse{Decision: localv1.AskRestoreResponse_START}))
	path := network(t, runPod(t, listening("saving", map[string]string{"dev.gvisor.internal.checkpoint.enable": "true"})))
	ctx := limited(t)
	wantAnswer(t, path, openPort)
	wantBroken(ctx, t, path, innerPort)
}

// TestForwardHost: the node's own loopback is not touched.
func TestForwardHost(t *testing.T) {
	ctx := limited(t)
	runPod(t, listening("other", nil))
	if _, err := new(net.Dialer).DialContext(ctx, "tcp4", "localhost:9"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the node's loopback: %v", err)
	}
}
