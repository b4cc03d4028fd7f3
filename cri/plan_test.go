package cri

import (
	"encoding/json"
	"strings"
	"testing"

	"diapause.dev/api/snapshot"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func encode(t testing.TB, v any) json.RawMessage {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func recorded(t testing.TB) snapshot.Pod {
	labels := map[string]string{labelPodName: "web", labelPodNamespace: "default", labelPodUID: "u1", "app": "web"}
	return snapshot.Pod{
		RuntimeHandler: "diapause",
		Sandbox: encode(t, &criapi.PodSandboxConfig{
			Metadata:     &criapi.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "u1", Attempt: 3},
			Hostname:     "web",
			LogDirectory: "/var/log/pods/default_web_u1",
			Labels:       labels,
			Annotations:  map[string]string{"a": "1", "b": "1"},
			PortMappings: []*criapi.PortMapping{{ContainerPort: 80, HostPort: 8080}},
			Linux:        &criapi.LinuxPodSandboxConfig{CgroupParent: "/kubepods/podu1"},
		}),
		Containers: []snapshot.Container{{Name: "app", Config: encode(t, &criapi.ContainerConfig{
			Metadata: &criapi.ContainerMetadata{Name: "app", Attempt: 2},
			Image:    &criapi.ImageSpec{Image: "localhost/app:1"},
			Labels:   labels,
			LogPath:  "app/2.log",
		})}},
	}
}

func TestPlan(t *testing.T) {
	p, err := planOf(recorded(t), identity{
		name: "copy", uid: "u2", logRoot: "/logs",
		annotations: map[string]string{"b": "2", "c": "2"},
	})
	if err != nil {
		t.Fatal(err)
	}
	s, c := p.sandbox, p.containers[0]
	for _, x := range []struct{ what, got, want string }{
		{"handler", p.handler, "diapause"},
		{"name", s.Metadata.Name, "copy"},
		{"namespace", s.Metadata.Namespace, "default"},
		{"uid", s.Metadata.Uid, "u2"},
		{"hostname", s.Hostname, "copy"},
		{"log directory", s.LogDirectory, "/logs/default_copy_u2"},
		{"cgroup", s.Linux.CgroupParent, "/kubepods/podu2"},
		{"label name", s.Labels[labelPodName], "copy"},
		{"label uid", c.Labels[labelPodUID], "u2"},
		{"other label", c.Labels["app"], "web"},
		{"annotation a", s.Annotations["a"], "1"},
		{"annotation b", s.Annotations["b"], "2"},
		{"annotation c", s.Annotations["c"], "2"},
		{"image", c.Image.Image, "localhost/app:1"},
	} {
		if x.got != x.want {
			t.Errorf("%s is %q, want %q", x.what, x.got, x.want)
		}
	}
	if s.Metadata.Attempt != 0 || c.Metadata.Attempt != 0 || s.PortMappings[0].HostPort != 0 ||
		s.PortMappings[0].ContainerPort != 80 {
		t.Errorf("attempts and ports: %v %v", s, c)
	}
}

func TestPlanRefuses(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(*snapshot.Pod, *identity)
		want string
	}{
		{"no json", func(r *snapshot.Pod, _ *identity) { r.Sandbox = []byte("{") }, "recorded pod configuration"},
		{"no metadata", func(r *snapshot.Pod, _ *identity) { r.Sandbox = []byte("{}") }, "no metadata"},
		{"no containers", func(r *snapshot.Pod, _ *identity) { r.Containers = nil }, "0 containers"},
		{
			"many containers", func(r *snapshot.Pod, _ *identity) { r.Containers = make([]snapshot.Container, 65) },
			"65 containers",
		},
		{"bad container", func(r *snapshot.Pod, _ *identity) { r.Containers[0].Config = []byte("[]") }, `container "app"`},
		{
			"empty container", func(r *snapshot.Pod, _ *identity) { r.Containers[0].Config = []byte("{}") },
			"no name or no image",
		},
		{"log path", func(r *snapshot.Pod, _ *identity) {
			r.Containers[0].Config = []byte(`{"metadata":{"name":"a"},"image":{"image":"i"},"log_path":"../../x"}`)
		}, "leaves the pod's log directory"},
		{"name", func(_ *snapshot.Pod, id *identity) { id.name = "../x" }, "snapshot name"},
		{"namespace", func(_ *snapshot.Pod, id *identity) { id.namespace = "a/b" }, "namespace"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rec, id := recorded(t), identity{name: "copy", uid: "u2", logRoot: "/logs"}
			tc.do(&rec, &id)
			if _, err := planOf(rec, id); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

func FuzzPlan(f *testing.F) {
	rec := recorded(f)
	f.Add([]byte(rec.Sandbox), []byte(rec.Containers[0].Config))
	f.Add([]byte(`{"metadata":{}}`), []byte(`{"metadata":{"name":"a"},"image":{"image":"i"},"log_path":"/x"}`))
	f.Fuzz(func(t *testing.T, sandbox, container []byte) {
		rec := snapshot.Pod{Sandbox: sandbox, Containers: []snapshot.Container{{Name: "app", Config: container}}}
		p, err := planOf(rec, identity{name: "copy", namespace: "default", uid: "u2", logRoot: "/logs"})
		if err == nil && p.sandbox.LogDirectory != "/logs/default_copy_u2" {
			t.Fatalf("log directory %q", p.sandbox.LogDirectory)
		}
	})
}
