package plan

import (
	"encoding/json"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/annotation"
	"google.golang.org/protobuf/proto"
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

// annotated is an annotation that a pod may have.
const annotated = "dev.gvisor.internal.checkpoint.enable"

func recorded(t testing.TB) snapshot.Pod {
	labels := map[string]string{labelPodName: "web", labelPodNamespace: "default", labelPodUID: "u1", "app": "web"}
	return snapshot.Pod{
		RuntimeHandler: "diapause",
		Sandbox: encode(t, &criapi.PodSandboxConfig{
			Metadata:     &criapi.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "u1", Attempt: 3},
			Hostname:     "web",
			LogDirectory: "/var/log/pods/default_web_u1",
			Labels:       labels,
			Annotations:  map[string]string{annotated: "true", "dev.gvisor.flag.debug": "true"},
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
	p, err := Of(recorded(t), Identity{
		Name: "copy", UID: "u2", LogRoot: "/logs",
		Annotations: map[string]string{"dev.gvisor.flag.debug": "false", "c": "2"},
	})
	if err != nil {
		t.Fatal(err)
	}
	s, c := p.Sandbox, p.Containers[0]
	for _, x := range []struct{ what, got, want string }{
		{"handler", p.Handler, "diapause"},
		{"name", s.Metadata.Name, "copy"},
		{"namespace", s.Metadata.Namespace, "default"},
		{"uid", s.Metadata.Uid, "u2"},
		{"hostname", s.Hostname, "copy"},
		{"log directory", s.LogDirectory, "/logs/default_copy_u2"},
		{"cgroup", s.Linux.CgroupParent, "/kubepods/podu2"},
		{"label name", s.Labels[labelPodName], "copy"},
		{"label uid", c.Labels[labelPodUID], "u2"},
		{"other label", c.Labels["app"], "web"},
		{"annotation of the record", s.Annotations[annotated], "true"},
		{"annotation of both", s.Annotations["dev.gvisor.flag.debug"], "false"},
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

// TestPlanKeeps: what gives a pod nothing of the node is taken over as it was.
func TestPlanKeeps(t *testing.T) {
	namespaces := &criapi.NamespaceOption{Pid: criapi.NamespaceMode_CONTAINER}
	profile := &criapi.SecurityProfile{}
	limits := &criapi.LinuxContainerResources{
		CpuPeriod: 100_000, CpuQuota: -1, CpuShares: 2, MemoryLimitInBytes: 1 << 30, OomScoreAdj: 1000, CpusetCpus: "0-1,3",
		CpusetMems: "0", HugepageLimits: []*criapi.HugepageLimit{{PageSize: "2MB", Limit: 1}},
		Unified: map[string]string{"memory.oom.group": "1"}, MemorySwapLimitInBytes: 1 << 30,
	}
	user, group := &criapi.Int64Value{Value: 5}, &criapi.Int64Value{}
	pod := &criapi.PodSandboxConfig{
		Metadata:     &criapi.PodSandboxMetadata{Name: "copy", Namespace: "default", Uid: "u2"},
		Hostname:     "else",
		LogDirectory: "/logs/default_copy_u2",
		DnsConfig: &criapi.DNSConfig{
			Servers: []string{"10.0.0.1"}, Searches: []string{"a.b"}, Options: []string{"ndots:5"},
		},
		PortMappings: []*criapi.PortMapping{{Protocol: criapi.Protocol_UDP, ContainerPort: 53}},
		Labels:       map[string]string{"app": "web", "app.kubernetes.io/name": "web"},
		Annotations:  map[string]string{annotated: "true"},
		Linux: &criapi.LinuxPodSandboxConfig{
			Sysctls: map[string]string{"net.ipv4.tcp_syncookies": "1"}, Overhead: limits, Resources: limits,
			SecurityContext: &criapi.LinuxSandboxSecurityContext{
				NamespaceOptions: namespaces, RunAsUser: user, RunAsGroup: group, ReadonlyRootfs: true,
				SupplementalGroups: []int64{7}, SupplementalGroupsPolicy: criapi.SupplementalGroupsPolicy_Strict,
				Seccomp: profile, Apparmor: profile,
			},
		},
	}
	app := &criapi.ContainerConfig{
		Metadata: &criapi.ContainerMetadata{Name: "app"},
		Image:    &criapi.ImageSpec{Image: "sha256:0123", UserSpecifiedImage: "localhost/app:1"},
		Command:  []string{"a"}, Args: []string{"b", ""}, WorkingDir: "/w",
		Envs:   []*criapi.KeyValue{{Key: "A", Value: []byte("1.2")}, {Key: "B", Value: []byte("abcd")}, {Key: "C"}},
		Mounts: []*criapi.Mount{{ContainerPath: "/i", Image: &criapi.ImageSpec{Image: "sha256:4567"}, Readonly: true}},
		Labels: map[string]string{"io.kubernetes.container.name": "app"}, Annotations: map[string]string{},
		LogPath: "app/0.log", Stdin: true, StdinOnce: true, Tty: true, StopSignal: criapi.Signal(2),
		Linux: &criapi.LinuxContainerConfig{
			Resources: limits,
			SecurityContext: &criapi.LinuxContainerSecurityContext{
				Capabilities: &criapi.Capability{
					AddCapabilities: []string{"CAP_NET_RAW", "kill"}, DropCapabilities: []string{"ALL"},
				},
				NamespaceOptions: namespaces, RunAsUser: user, RunAsGroup: group, RunAsUsername: "me", ReadonlyRootfs: true,
				SupplementalGroups: []int64{7}, SupplementalGroupsPolicy: criapi.SupplementalGroupsPolicy_Strict,
				NoNewPrivs: true, Seccomp: profile, Apparmor: profile,
			},
		},
	}
	rec := snapshot.Pod{
		RuntimeHandler: "diapause", Sandbox: encode(t, pod),
		Containers: []snapshot.Container{{Name: "app", Config: encode(t, app)}},
	}
	p, err := Of(rec, Identity{Name: "copy", UID: "u2", LogRoot: "/logs"})
	if err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(p.Sandbox, pod) {
		t.Errorf("pod\n%v, was\n%v", p.Sandbox, pod)
	}
	if !proto.Equal(p.Containers[0], app) {
		t.Errorf("container\n%v, was\n%v", p.Containers[0], app)
	}
}

func TestPlanRefuses(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(*snapshot.Pod, *Identity)
		want string
	}{
		{"no json", func(r *snapshot.Pod, _ *Identity) { r.Sandbox = []byte("{") }, "decode its configuration"},
		{"no metadata", func(r *snapshot.Pod, _ *Identity) { r.Sandbox = []byte("{}") }, "no metadata"},
		{"no containers", func(r *snapshot.Pod, _ *Identity) { r.Containers = nil }, "0 containers"},
		{
			"many containers", func(r *snapshot.Pod, _ *Identity) { r.Containers = make([]snapshot.Container, 65) },
			"65 containers",
		},
		{"bad container", func(r *snapshot.Pod, _ *Identity) { r.Containers[0].Config = []byte("[]") }, `container "app"`},
		{
			"empty container", func(r *snapshot.Pod, _ *Identity) { r.Containers[0].Config = []byte("{}") },
			"no name or no image",
		},
		{"log path", func(r *snapshot.Pod, _ *Identity) {
			r.Containers[0].Config = []byte(`{"metadata":{"name":"a"},"image":{"image":"i"},"log_path":"../../x"}`)
		}, "leaves the pod's log directory"},
		{"name", func(_ *snapshot.Pod, id *Identity) { id.Name = "../x" }, "snapshot name"},
		{"namespace", func(_ *snapshot.Pod, id *Identity) { id.Namespace = "a/b" }, "namespace"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rec, id := recorded(t), Identity{Name: "copy", UID: "u2", LogRoot: "/logs"}
			tc.do(&rec, &id)
			if _, err := Of(rec, id); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

// FuzzPlan: whatever a record contains, nothing of the node is in the plan.
func FuzzPlan(f *testing.F) {
	rec := recorded(f)
	f.Add([]byte(rec.Sandbox), []byte(rec.Containers[0].Config))
	f.Add([]byte(`{"metadata":{}}`), []byte(`{"metadata":{"name":"a"},"image":{"image":"i"},"log_path":"/x"}`))
	f.Add([]byte(`{"metadata":{"uid":"u"},"linux":{"cgroup_parent":"/x/podu","sysctls":{"kernel.x":"1"},
		"security_context":{"privileged":true,"namespace_options":{"network":2}}}}`),
		[]byte(`{"metadata":{"name":"a"},"image":{"image":"i"},"labels":{"containerd.io/x":""},"CDI_devices":[{"name":"x"}],
		"mounts":[{"host_path":"/","container_path":"/h"}],"devices":[{"host_path":"/dev/sda"}],"linux":{
		"resources":{"oom_score_adj":-1,"unified":{"memory.min":"1"}},"security_context":{"Privileged":true,
		"capabilities":{"add_capabilities":["ALL"]},"seccomp":{"profile_type":1},"apparmor":{"profile_type":2}}}}`))
	f.Fuzz(func(t *testing.T, sandbox, container []byte) {
		rec := snapshot.Pod{Sandbox: sandbox, Containers: []snapshot.Container{{Name: "app", Config: container}}}
		p, err := Of(rec, Identity{Name: "copy", Namespace: "default", UID: "u2", LogRoot: "/logs"})
		if err == nil {
			harmless(t, p)
		}
	})
}

// harmless fails the test if a plan has anything of the node.
func harmless(t *testing.T, p *Plan) {
	t.Helper()
	s, c := p.Sandbox, p.Containers[0]
	if s.LogDirectory != "/logs/default_copy_u2" || c.LogPath != "" && !filepath.IsLocal(c.LogPath) {
		t.Errorf("logs in %q, %q", s.LogDirectory, c.LogPath)
	}
	sc, cc := s.GetLinux().GetSecurityContext(), c.GetLinux().GetSecurityContext()
	if sc.GetPrivileged() || cc.GetPrivileged() {
		t.Error("it is privileged")
	}
	for _, n := range []*criapi.NamespaceOption{sc.GetNamespaceOptions(), cc.GetNamespaceOptions()} {
		if n.GetNetwork() != 0 || n.GetPid() > 1 || n.GetIpc() != 0 || n.GetTargetId() != "" || n.GetUsernsOptions() != nil {
			t.Errorf("namespaces %v", n)
		}
	}
	for _, x := range []*criapi.SecurityProfile{sc.GetSeccomp(), sc.GetApparmor(), cc.GetSeccomp(), cc.GetApparmor()} {
		if x.GetProfileType() != criapi.SecurityProfile_RuntimeDefault || x.GetLocalhostRef() != "" {
			t.Errorf("profile %v", x)
		}
	}
	for _, m := range c.Mounts {
		if m.HostPath != "" || m.Image.GetImage() == "" {
			t.Errorf("mount %v", m)
		}
	}
	if len(c.Devices)+len(c.CDIDevices) > 0 || sc.GetSelinuxOptions() != nil || cc.GetSelinuxOptions() != nil {
		t.Errorf("devices, or labels of SELinux: %v", c)
	}
	for _, name := range append(cc.GetCapabilities().GetAddCapabilities(),
		cc.GetCapabilities().GetAddAmbientCapabilities()...) {
		if !slices.Contains(defaultCapabilities, strings.TrimPrefix(strings.ToUpper(name), "CAP_")) {
			t.Errorf("capability %q", name)
		}
	}
	for name := range s.GetLinux().GetSysctls() {
		if !slices.Contains(safeSysctls, name) {
			t.Errorf("sysctl %q", name)
		}
	}
	for _, all := range []map[string]string{s.Labels, c.Labels} {
		for name := range all {
			if strings.ContainsAny(name, "/.") && !strings.Contains(name, "kubernetes") && !strings.Contains(name, "k8s.io/") {
				t.Errorf("label %q", name)
			}
		}
	}
	for _, all := range []map[string]string{s.Annotations, c.Annotations} {
		for name, value := range all {
			if !annotation.OfGVisor(name) || !annotation.Allowed(name, value, nil) {
				t.Errorf("annotation %q", name)
			}
		}
	}
	if g := s.GetLinux().GetCgroupParent(); g != "" && !strings.Contains(path.Base(g), "u2") {
		t.Errorf("cgroup %q", g)
	}
	if c.GetLinux().GetResources().GetOomScoreAdj() < 0 {
		t.Error("it is protected from the OOM killer")
	}
	for _, m := range s.PortMappings {
		if m.HostPort != 0 || m.HostIp != "" {
			t.Errorf("port %v", m)
		}
	}
}
