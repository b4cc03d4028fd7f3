package integration

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"diapause.dev/api/snapshot"
	"diapause.dev/cri"
	"diapause.dev/cri/plan"
	"diapause.dev/test/bed"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func record(t *testing.T) snapshot.Pod {
	t.Helper()
	sleep := []string{"/bin/sleep", "infinity"}
	pod := runPod(t, bed.PodSpec{Name: "origin", Labels: map[string]string{"app": "x"}, Containers: []bed.Container{
		{Name: "second", Command: sleep, Env: map[string]string{"A": "1"}},
		{Name: "first", Command: sleep},
		{Name: "over", Command: []string{"/bin/true"}},
	}})
	for ctx := limited(t); ; time.Sleep(20 * time.Millisecond) { // the last container ends by itself
		p, err := client.Get(ctx, pod.ID)
		if err != nil {
			t.Fatal(err)
		}
		if p.Containers[2].State == cri.StateExited {
			break
		}
	}
	rec, err := client.Record(limited(t), pod.ID)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// TestJustStarted: a process that runs is recorded, even if the CRI has not heard of its start.
func TestJustStarted(t *testing.T) {
	ctx := limited(t)
	pod := runPod(t, bed.PodSpec{Name: "young"})
	status, err := node.Runtime.ContainerStatus(ctx, &criapi.ContainerStatusRequest{ContainerId: pod.Containers[0].ID})
	if err != nil {
		t.Fatal(err)
	}
	made, err := node.Runtime.CreateContainer(ctx, &criapi.CreateContainerRequest{
		PodSandboxId: pod.ID,
		Config: &criapi.ContainerConfig{
			Metadata: &criapi.ContainerMetadata{Name: "late"}, Image: status.Status.Image,
			Command: []string{"/bin/sleep", "infinity"}, Linux: &criapi.LinuxContainerConfig{},
		},
		SandboxConfig: &criapi.PodSandboxConfig{Metadata: &criapi.PodSandboxMetadata{
			Name: pod.Name, Namespace: pod.Namespace,
			Uid: pod.UID,
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	late := made.ContainerId
	if ids, err := client.Running(ctx, pod.ID); err != nil || slices.Contains(ids, late) {
		t.Errorf("before its start: running %q, %v", ids, err)
	}
	tasks(t, "start", "--detach", "--null-io", late)
	ids, err := client.Running(ctx, pod.ID)
	if want := []string{pod.Containers[0].ID, late}; err != nil || !slices.Equal(ids, want) {
		t.Errorf("running %q, %v, want %q", ids, err, want)
	}
	rec, err := client.Record(ctx, pod.ID)
	if err != nil || len(rec.Containers) != 2 || rec.Containers[1].Name != "late" {
		t.Errorf("%d containers are recorded, %v", len(rec.Containers), err)
	}
	tasks(t, "delete", "--force", late)
}

// tasks makes containerd do something with a task without the CRI's knowledge.
func tasks(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(limited(t), "ctr",
		append([]string{"--namespace=k8s.io", "tasks"}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("ctr tasks %q: %v\n%s", args, err, out)
	}
}

func TestRecordAndRun(t *testing.T) {
	ctx := limited(t)
	rec := record(t)
	if len(rec.Containers) != 2 || rec.Containers[0].Name != "second" || rec.Containers[1].Name != "first" ||
		rec.RuntimeHandler != bed.Diapause {
		t.Fatalf("record %+v", rec)
	}
	var stages []string
	pod, err := client.RunRestored(ctx, rec, cri.RunOptions{
		Name: "copy", Annotations: map[string]string{"example.com/a": "b"},
		Progress: func(stage string) { stages = append(stages, stage) },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer removePod(t, pod.ID)
	want := []string{
		"sandbox", "create over", "create second", "create first", "start over", "start second",
		"start first",
	}
	if !slices.Equal(stages, want) {
		t.Errorf("stages %q, want %q", stages, want)
	}
	if !pod.Ready || pod.Name != "copy" || pod.Namespace != "default" || pod.Annotations["example.com/a"] != "b" ||
		pod.Labels["app"] != "x" {
		t.Errorf("pod %+v", pod)
	}
	second := slices.IndexFunc(pod.Containers, func(c cri.Container) bool { return c.Name == "second" })
	if second < 0 {
		t.Fatalf("containers %+v", pod.Containers)
	}
	out, code, err := node.Exec(ctx, pod.Containers[second].ID, "/bin/sh", "-c",
		"hostname; tr '\\0' '\\n' < /proc/1/environ")
	if err != nil || code != 0 || !strings.HasPrefix(out, "copy\n") || !strings.Contains(out, "A=1") {
		t.Errorf("in the pod: %q, %d, %v", out, code, err)
	}
}

// TestHostileRecord: forged records make no pod on a real containerd.
func TestHostileRecord(t *testing.T) {
	for name, forge := range map[string]struct {
		do   func(*snapshot.Pod)
		want error
	}{
		"handler":  {func(r *snapshot.Pod) { r.RuntimeHandler = bed.Runc }, cri.ErrOtherRuntime},
		"default":  {func(r *snapshot.Pod) { r.RuntimeHandler = "" }, cri.ErrOtherRuntime},
		"nobody's": {func(r *snapshot.Pod) { r.RuntimeHandler = "nobody" }, cri.ErrOtherRuntime},
		"mount": {func(r *snapshot.Pod) {
			r.Containers[0].Config = []byte(strings.Replace(string(r.Containers[0].Config), `"command":`,
				`"mounts":[{"host_path":"/","container_path":"/host"}],"command":`, 1))
		}, plan.ErrNotAllowed},
	} {
		t.Run(name, func(t *testing.T) {
			rec := record(t)
			forge.do(&rec)
			pod, err := client.RunRestored(limited(t), rec, cri.RunOptions{Name: "forged"})
			if err == nil {
				removePod(t, pod.ID)
			}
			if !errors.Is(err, forge.want) {
				t.Errorf("error %v, want %v", err, forge.want)
			}
		})
	}
}

// TestAllowed: what an operator names is taken over from a record.
func TestAllowed(t *testing.T) {
	shared := t.TempDir()
	if err := os.WriteFile(shared+"/mark", []byte("of the node"), 0o644); err != nil {
		t.Fatal(err)
	}
	origin := runPod(t, bed.PodSpec{Name: "origin", Containers: []bed.Container{{
		Name: "app", Command: []string{"/bin/sleep", "infinity"}, Mounts: []bed.Mount{{Host: shared, Container: "/srv"}},
	}}})
	rec, err := client.Record(limited(t), origin.ID)
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.RunRestored(limited(t), rec, cri.RunOptions{Name: "copy"})
	if !errors.Is(err, plan.ErrNotAllowed) || !strings.Contains(err.Error(), "--allow=host-path:"+shared) {
		t.Fatalf("without an allowance: %v", err)
	}
	pod, err := client.RunRestored(limited(t), rec, cri.RunOptions{
		Name: "copy", Allow: []plan.Allowance{plan.Allowance("host-path:" + shared)},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer removePod(t, pod.ID)
	out, _, err := node.Exec(limited(t), pod.Containers[0].ID, "/bin/cat", "/srv/mark")
	if err != nil || out != "of the node" {
		t.Errorf("the mount has %q, %v", out, err)
	}
}

// TestRunFails names an image that does not exist. The sandbox that was made is removed again, and so are its logs.
func TestRunFails(t *testing.T) {
	rec := record(t)
	rec.Containers[1].Config = []byte(strings.ReplaceAll(string(rec.Containers[1].Config), "localhost/busybox:1",
		"localhost/nothing:1"))
	before, err := client.Pods(limited(t))
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.RunRestored(limited(t), rec, cri.RunOptions{Name: "failing"})
	if !errors.Is(err, cri.ErrNotFound) || !strings.Contains(err.Error(), "create container first") ||
		!strings.Contains(err.Error(), `"failing"`) {
		t.Errorf("error %v", err)
	}
	after, err := client.Pods(limited(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(after) != len(before) {
		t.Errorf("%d pods, there were %d", len(after), len(before))
	}
	logs, err := os.ReadDir(cri.DefaultLogRoot)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range logs {
		if strings.HasPrefix(l.Name(), "default_failing_") {
			t.Errorf("log directory %s is left", l.Name())
		}
	}
}
