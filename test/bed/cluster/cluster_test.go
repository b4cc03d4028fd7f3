package cluster

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"diapause.dev/test/bed"
	"diapause.dev/test/images"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func startCluster(t *testing.T) (context.Context, *bed.Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	c, err := bed.StartCluster(ctx, bed.ClusterOptions{Nodes: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			for _, n := range c.Nodes() {
				t.Logf("kubelet of %s:\n%s", n.Name, n.Kubelet.Log())
			}
		}
	})
	return ctx, c
}

func TestCluster(t *testing.T) {
	ctx, c := startCluster(t)
	var pods []*corev1.Pod
	for _, n := range c.Nodes() {
		pods = append(pods, runServer(ctx, t, c, "on-"+n.Name, n, bed.Diapause))
	}
	t.Run("network", func(t *testing.T) { reach(ctx, t, c, pods) })
	t.Run("kubectl", func(t *testing.T) { useKubectl(ctx, t, c, pods[0]) })
	t.Run("port-forward", func(t *testing.T) {
		for _, pod := range append(pods, runServer(ctx, t, c, "runc", c.Node(0), "")) {
			forward(ctx, t, c, pod)
		}
	})
	t.Run("node", func(t *testing.T) { lookInside(ctx, t, c.Node(1)) })
	t.Run("agent", func(t *testing.T) { checkpoint(ctx, t, c.Node(1), pods[1]) })
	t.Run("object store", func(t *testing.T) { store(ctx, t, c, pods[1]) })
	t.Run("daemons", func(t *testing.T) { restartDaemons(ctx, t, c, pods) })
	t.Run("crash", func(t *testing.T) { crash(ctx, t, c) })
	t.Run("close", func(t *testing.T) { closeCluster(t, c) })
}

// TestClusterAgain shows that a second cluster begins with nothing.
func TestClusterAgain(t *testing.T) {
	ctx, c := startCluster(t)
	pods, err := c.Client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil || len(pods.Items) > 0 {
		t.Errorf("there are pods from before: %v, %v", pods.Items, err)
	}
	for _, n := range c.Nodes() {
		if dirs, err := os.ReadDir(n.Path("/var/lib/diapause")); err != nil || len(dirs) > 0 {
			t.Errorf("%s has files from before: %v, %v", n.Name, dirs, err)
		}
	}
	runServer(ctx, t, c, "web", c.Node(0), bed.Diapause)
}

// serverCommand serves the pod's name to who asks at port 8080.
const serverCommand = "hostname > /tmp/index.html; echo serving; exec httpd -f -p 8080 -h /tmp"

// runServer runs a pod on a node, and returns it when it answers.
func runServer(ctx context.Context, t *testing.T, c *bed.Cluster, name string, n *bed.Node, class string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{corev1.LabelHostname: n.Name},
			Containers: []corev1.Container{{
				Name: "server", Image: images.Busybox, Command: []string{"/bin/sh", "-c", serverCommand},
			}},
		},
	}
	if class != "" {
		pod.Spec.RuntimeClassName = &class
	}
	if _, err := c.Client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(ctx, t, func() (err error) {
		pod, err = c.Client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return get(ctx, "http://"+pod.Status.PodIP+":8080/", name+"\n")
	})
	return pod
}

func get(ctx context.Context, url, want string) error {
	body, err := bed.Fetch(ctx, url)
	if err == nil && string(body) != want {
		err = fmt.Errorf("%s: got %q, want %q", url, body, want)
	}
	return err
}

// askAPI speaks to the Service of the API in a way that it answers with a complaint.
const askAPI = `printf 'GET / HTTP/1.0\r\n\r\n' | busybox nc ${KUBERNETES_SERVICE_HOST:-10.96.0.1} 443`

// reach shows that pods reach each other, and pods and nodes the Service of the API.
func reach(ctx context.Context, t *testing.T, c *bed.Cluster, pods []*corev1.Pod) {
	for i, from := range pods {
		to := pods[1-i]
		out, err := c.Kubectl(ctx, "exec", from.Name, "--", "wget", "-qO-", "http://"+to.Status.PodIP+":8080/")
		if err != nil || out != to.Name+"\n" {
			t.Errorf("%s from %s: %q, %v", to.Name, from.Name, out, err)
		}
		out, err = c.Kubectl(ctx, "exec", from.Name, "--", "sh", "-c", askAPI)
		if err != nil || !strings.Contains(out, "to an HTTPS server") {
			t.Errorf("the API from %s: %q, %v", from.Name, out, err)
		}
	}
	for _, n := range c.Nodes() {
		out, err := n.Exec(ctx, "sh", "-c", askAPI)
		if err != nil || !strings.Contains(out, "to an HTTPS server") {
			t.Errorf("the API from %s: %q, %v", n.Name, out, err)
		}
	}
}

func useKubectl(ctx context.Context, t *testing.T, c *bed.Cluster, pod *corev1.Pod) {
	out, err := c.Kubectl(ctx, "logs", pod.Name)
	if err != nil || out != "serving\n" {
		t.Errorf("logs: %q, %v", out, err)
	}
	out, err = c.Kubectl(ctx, "exec", pod.Name, "--", "dmesg")
	if err != nil || !strings.Contains(out, "gVisor") {
		t.Errorf("the pod is not in gVisor: %q, %v", out, err)
	}
	if _, err := c.Kubectl(ctx, "exec", pod.Name, "--", "false"); err == nil {
		t.Error("a command that fails is no error")
	}
}

// forward reaches a pod by way of the API server and the kubelet.
func forward(ctx context.Context, t *testing.T, c *bed.Cluster, pod *corev1.Pod) {
	cmd := exec.CommandContext(ctx, c.Bin.Path("kubectl"), "--kubeconfig="+c.Kubeconfig, "port-forward", "pod/"+pod.Name,
		":8080")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait() // says that it was killed
	defer cmd.Process.Kill()
	var port int
	if _, err := fmt.Fscanf(out, "Forwarding from 127.0.0.1:%d", &port); err != nil {
		t.Fatalf("the port that is forwarded: %v", err)
	}
	if err := get(ctx, fmt.Sprintf("http://127.0.0.1:%d/", port), pod.Name+"\n"); err != nil {
		t.Error(err)
	}
}

// lookInside shows that a node has its own files, name and processes.
func lookInside(ctx context.Context, t *testing.T, n *bed.Node) {
	if err := os.WriteFile(n.Path("/run/mark"), []byte("here"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := n.Exec(ctx, "sh", "-c", "hostname; cat /run/mark; ls /proc/1/root/var/lib/kubelet/config.yaml")
	if err != nil || out != n.Name+"\nhere/proc/1/root/var/lib/kubelet/config.yaml\n" {
		t.Errorf("in the node: %q, %v", out, err)
	}
	if _, err := os.Stat("/run/mark"); err == nil {
		t.Error("the node's file is the bed's, too")
	}
	if _, err := n.Exec(ctx, "sh", "-c", "echo because >&2; false"); err == nil ||
		!strings.Contains(err.Error(), "because") {
		t.Errorf("a command that fails: %v", err)
	}
}

// checkpoint shows that an agent in a node checkpoints a pod that the kubelet started, and
// that the pod goes on.
func checkpoint(ctx context.Context, t *testing.T, n *bed.Node, pod *corev1.Pod) {
	agent, err := n.StartAgent(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Kill()
	out, err := n.Exec(ctx, "diapause", "checkpoint", "default/"+pod.Name)
	if err != nil {
		t.Fatalf("%v\n%s\nagent:\n%s", err, out, agent.Log())
	}
	if err := get(ctx, "http://"+pod.Status.PodIP+":8080/", pod.Name+"\n"); err != nil {
		t.Errorf("after the checkpoint: %v", err)
	}
}

// store shows that the object store keeps its data, and that nodes and pods reach it.
func store(ctx context.Context, t *testing.T, c *bed.Cluster, pod *corev1.Pod) {
	g, err := bed.StartGCS(ctx, "bucket")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { g.Kill() }()
	url := "http://" + g.Address
	r, err := http.Post(url+"/upload/storage/v1/b/bucket/o?uploadType=media&name=a", "text/plain",
		strings.NewReader("kept"))
	if err != nil || r.Body.Close() != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("upload: %v, %v", r, err)
	}
	g.Kill()
	if err := g.Start(ctx); err != nil {
		t.Fatal(err)
	}
	fetch := []string{"wget", "-qO-", url + "/storage/v1/b/bucket/o/a?alt=media"}
	if out, err := c.Node(0).Exec(ctx, "busybox", fetch...); err != nil || out != "kept" {
		t.Errorf("from a node: %q, %v", out, err)
	}
	out, err := c.Kubectl(ctx, append([]string{"exec", pod.Name, "--"}, fetch...)...)
	if err != nil || out != "kept" {
		t.Errorf("from a pod: %q, %v", out, err)
	}
}

// restartDaemons kills each daemon of each node: pods live on, and new ones can be made.
func restartDaemons(ctx context.Context, t *testing.T, c *bed.Cluster, pods []*corev1.Pod) {
	for i, n := range c.Nodes() {
		n.Kubelet.Kill()
		n.Containerd.Kill()
		if err := n.Containerd.Start(ctx); err != nil {
			t.Fatal(err)
		}
		if err := n.Kubelet.Start(ctx); err != nil {
			t.Fatal(err)
		}
		eventually(ctx, t, func() error {
			_, err := c.Kubectl(ctx, "exec", pods[i].Name, "--", "true")
			return err
		})
		runServer(ctx, t, c, "after-"+n.Name, n, "")
		pod, err := c.Client.CoreV1().Pods("default").Get(ctx, pods[i].Name, metav1.GetOptions{})
		if err != nil || pod.Status.ContainerStatuses[0].RestartCount > 0 || pod.Status.PodIP != pods[i].Status.PodIP {
			t.Errorf("%s after the restart: %+v, %v", pods[i].Name, pod.Status, err)
		}
	}
}

// crash takes a node away and looks for what is left of it.
func crash(ctx context.Context, t *testing.T, c *bed.Cluster) {
	gone := c.Node(0)
	if len(remains(t, gone.CgroupParent)) == 0 {
		t.Fatalf("nothing of %s is to be seen while it is there", gone.Name)
	}
	if err := gone.Crash(); err != nil {
		t.Fatal(err)
	}
	if left := remains(t, gone.CgroupParent); len(left) > 0 {
		t.Errorf("left of %s: %q", gone.Name, left)
	}
	if _, err := c.Client.CoreV1().Nodes().Get(ctx, gone.Name, metav1.GetOptions{}); err != nil {
		t.Errorf("the API has forgotten %s: %v", gone.Name, err)
	}
	if _, err := c.Kubectl(ctx, "exec", "on-"+c.Node(1).Name, "--", "true"); err != nil {
		t.Errorf("on the other node: %v", err)
	}
}

// closeCluster closes a cluster with pods on it, and looks for what is left.
func closeCluster(t *testing.T, c *bed.Cluster) {
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	for _, n := range c.Nodes() {
		if left := remains(t, n.CgroupParent); len(left) > 0 {
			t.Errorf("left of %s: %q", n.Name, left)
		}
	}
}
