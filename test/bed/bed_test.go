package bed_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"diapause.dev/test/bed"
	"diapause.dev/test/images"
)

func TestMain(m *testing.M) {
	if os.Getenv(holdVariable) != "" {
		bed.Enter()
		hold()
	}
	bed.Main(m)
}

// start starts a bed that is closed at the end of the test.
func start(t *testing.T) (context.Context, *bed.Bed) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	b, err := bed.Start(ctx, bed.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := b.Close(ctx); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			bed.SaveLog(t, "containerd", b.Containerd.Log())
		}
	})
	return ctx, b
}

func TestPod(t *testing.T) {
	ctx, b := start(t)
	for _, handler := range []string{bed.Runc, bed.Diapause} {
		t.Run(handler, func(t *testing.T) { testPod(ctx, t, b, handler) })
	}
}

func testPod(ctx context.Context, t *testing.T, b *bed.Bed, handler string) {
	shared := t.TempDir()
	if err := os.WriteFile(filepath.Join(shared, "index.html"), []byte("hello"), 0o644); err != nil {
		t.Fatal(err)
	}
	pod, err := b.RunPod(ctx, bed.PodSpec{Name: "web", Handler: handler, Containers: []bed.Container{
		{
			Name: "server", Command: []string{"/bin/httpd", "-f", "-p", "80", "-h", "/srv"},
			Mounts: []bed.Mount{{Host: shared, Container: "/srv"}},
		},
		{
			Name: "talker", Command: []string{"/bin/sh", "-c", "echo $GREETING; exec sleep infinity"},
			Env: map[string]string{"GREETING": "good day"},
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	eventually(ctx, t, func() error { return get(ctx, "http://"+pod.IP+"/", "hello") })
	eventually(ctx, t, func() error {
		log, err := b.Logs(ctx, pod.Container("talker"))
		return expect(err, log, "good day\n")
	})
	out, code, err := b.Exec(ctx, pod.Container("talker"), "/bin/sh", "-c", "hostname; exit 3")
	if err != nil || code != 3 || out != "web\n" {
		t.Errorf("exec: %q, status %d, %v; want \"web\\n\" and 3", out, code, err)
	}
	same, err := b.Pod(ctx, pod.ID)
	if err != nil || same.UID != pod.UID || same.IP != pod.IP || same.Container("server") != pod.Container("server") {
		t.Errorf("looked up: %+v, %v; want %+v", same, err, pod)
	}
	if err := b.RemovePod(ctx, pod.ID); err != nil {
		t.Error(err)
	}
	if pods, err := b.Pods(ctx); err != nil || len(pods) > 0 {
		t.Errorf("after its removal there are %v, %v", pods, err)
	}
}

func TestPodThatFailsToStart(t *testing.T) {
	ctx, b := start(t)
	spec := bed.PodSpec{
		Name: "bad", Handler: bed.Runc,
		Containers: []bed.Container{{Name: "bad", Command: []string{"/no/such/program"}}},
	}
	if _, err := b.RunPod(ctx, spec); err == nil {
		t.Fatal("a pod with no program has started")
	}
	spec.Containers[0].Command = []string{"/bin/true"}
	if _, err := b.RunPod(ctx, spec); err != nil {
		t.Errorf("a pod of the same name afterwards: %v", err)
	}
}

// TestImagesStay moves the name of an image to another, adds a name and removes an image. The next bed has the images
// that this one had at first.
func TestImagesStay(t *testing.T) {
	var before string
	t.Run("changed", func(t *testing.T) {
		ctx, b := start(t)
		before = listImages(ctx, t)
		moved := filepath.Join(t.TempDir(), "moved.tar")
		f, err := os.Create(moved)
		if err == nil {
			err = errors.Join(images.WriteMoved(f, b.Bin), f.Close(), b.Containerd.Import(ctx, moved))
		}
		if err != nil {
			t.Fatal(err)
		}
		ctr(ctx, t, "images", "tag", images.Workload, "localhost/another:1")
		ctr(ctx, t, "images", "remove", "--sync", images.Busybox)
		if now := listImages(ctx, t); now == before || strings.Contains(now, images.Busybox) {
			t.Errorf("it has the images\n%s", now)
		}
	})
	ctx, b := start(t)
	if now := listImages(ctx, t); now != before || !strings.Contains(now, images.Busybox) {
		t.Errorf("the next bed has the images\n%s\nnot\n%s", now, before)
	}
	pod, err := b.RunPod(ctx, bed.PodSpec{Name: "with", Handler: bed.Runc, Containers: []bed.Container{
		{Name: "app", Image: images.Workload, Command: []string{"/bin/sleep", "infinity"}}, {Name: "shell"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, code, err := b.Exec(ctx, pod.Container("app"), "/bin/test", "-e", "/etc/moved"); err != nil || code != 1 {
		t.Errorf("the pod's image is another one: %d, %v", code, err)
	}
}

// listImages returns a line for each image that has a name of its own, with what it is.
func listImages(ctx context.Context, t *testing.T) string {
	t.Helper()
	var lines []string
	for line := range strings.Lines(ctr(ctx, t, "images", "list")) {
		if f := strings.Fields(line); len(f) > 2 && strings.Contains(f[0], "/") {
			lines = append(lines, f[0]+" "+f[2])
		}
	}
	return strings.Join(lines, "\n")
}

// ctr runs containerd's own command for the namespace of pods.
func ctr(ctx context.Context, t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(ctx, "ctr", append([]string{"--namespace=k8s.io"}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("ctr %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// TestCloseStuck has a pod that cannot be removed: it is an error of its own bed, and the next bed knows nothing of it.
func TestCloseStuck(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	b, err := bed.Start(ctx, bed.Options{})
	if err != nil {
		t.Fatal(err)
	}
	spec := bed.PodSpec{Name: "stuck", Handler: bed.Diapause}
	pod, err := b.RunPod(ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	shims, err := bed.Shims(pod.ID)
	if err != nil || len(shims) != 1 {
		t.Fatalf("shims %v, %v", shims, err)
	}
	if err := syscall.Kill(shims[0], syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := b.Close(short); err == nil || !strings.Contains(err.Error(), pod.ID) {
		t.Errorf("its bed was closed: %v", err)
	}
	if left, err := bed.Shims(pod.ID); err != nil || len(left) > 0 {
		t.Errorf("shims %v are left, %v", left, err)
	}
	ctx, b = start(t)
	if pods, err := b.Pods(ctx); err != nil || len(pods) > 0 {
		t.Errorf("the next bed has %v, %v", pods, err)
	}
	if _, err := b.RunPod(ctx, spec); err != nil {
		t.Errorf("a pod of the same name: %v", err)
	}
}

func TestContainerdRestart(t *testing.T) {
	ctx, b := start(t)
	pod, err := b.RunPod(ctx, bed.PodSpec{Name: "survivor", Handler: bed.Diapause})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Containerd.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	if _, code, err := b.Exec(ctx, pod.Containers[0].ID, "/bin/true"); err != nil || code != 0 {
		t.Errorf("exec after the restart: status %d, %v", code, err)
	}
}

func TestAgent(t *testing.T) {
	ctx, b := start(t)
	first, err := b.StartAgent(ctx)
	if err != nil {
		t.Fatal(err)
	}
	first.Kill()
	second, err := b.StartAgent(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Stop(ctx); err != nil {
		t.Error(err)
	}
	other, err := net.Listen("unix", bed.AgentSocket) // the socket takes connections, but they are not the agent's
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := b.StartAgent(ctx, "--no-such-flag"); err == nil || !strings.Contains(err.Error(), "no-such-flag") {
		t.Errorf("an agent with a wrong flag: %v, want its own words", err)
	}
}

// TestTmpIsPrivate shows that nothing of the machine's is in the way.
func TestTmpIsPrivate(t *testing.T) {
	if !strings.HasPrefix(t.TempDir(), "/run/tmp/") {
		t.Errorf("temporary directories are at %s", t.TempDir())
	}
	if out, err := exec.Command("mount").CombinedOutput(); err != nil ||
		!strings.Contains(string(out), " on /run type tmpfs") {
		t.Errorf("mounts: %v\n%s", err, out)
	}
}

// eventually calls f until it returns nil, or the test's time is up.
func eventually(ctx context.Context, t *testing.T, f func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := bed.Until(ctx, f); err != nil {
		t.Fatal(err)
	}
}

func expect(err error, got, want string) error {
	if err == nil && got != want {
		err = fmt.Errorf("got %q, want %q", got, want)
	}
	return err
}

func get(ctx context.Context, url, want string) error {
	body, err := bed.Fetch(ctx, url)
	return expect(err, string(body), want)
}
