package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"diapause.dev/api/snapshot"
	"google.golang.org/protobuf/proto"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// forgery is a record in which an attacker has changed something.
type forgery struct {
	name    string
	sandbox func(*criapi.PodSandboxConfig)
	app     func(*criapi.ContainerConfig)
	config  string   // of the container; empty: as app makes it
	allow   []string // that names all of it
}

func (f forgery) record(t testing.TB) snapshot.Pod {
	t.Helper()
	rec := recorded(t)
	var s criapi.PodSandboxConfig
	var c criapi.ContainerConfig
	if err := errors.Join(json.Unmarshal(rec.Sandbox, &s), json.Unmarshal(rec.Containers[0].Config, &c)); err != nil {
		t.Fatal(err)
	}
	c.Linux = &criapi.LinuxContainerConfig{
		SecurityContext: &criapi.LinuxContainerSecurityContext{}, Resources: &criapi.LinuxContainerResources{},
	}
	s.Linux.SecurityContext = &criapi.LinuxSandboxSecurityContext{}
	if f.sandbox != nil {
		f.sandbox(&s)
	}
	if f.app != nil {
		f.app(&c)
	}
	rec.Sandbox, rec.Containers[0].Config = encode(t, &s), encode(t, &c)
	if f.config != "" {
		rec.Containers[0].Config = []byte(f.config)
	}
	return rec
}

// refused fails the test unless a forged record is refused, with flags that name everything, and is taken with them.
func (f forgery) refused(t *testing.T) {
	t.Run(f.name, func(t *testing.T) {
		rec := f.record(t)
		p, err := Of(rec, newIdentity())
		if !errors.Is(err, ErrNotAllowed) {
			t.Fatalf("error %v, plan %+v", err, p)
		}
		for _, a := range f.allow {
			if !strings.Contains(err.Error(), "--allow="+a) {
				t.Errorf("error %q does not name --allow=%s", err, a)
			}
		}
		id := newIdentity()
		if id.Allow, err = ParseAllowances(f.allow); err != nil {
			t.Fatal(err)
		}
		if _, err := Of(rec, id); err != nil {
			t.Errorf("with %q: %v", f.allow, err)
		}
		for i := range id.Allow { // each is needed
			less := id
			less.Allow = append(append([]Allowance(nil), id.Allow[:i]...), id.Allow[i+1:]...)
			if _, err := Of(rec, less); !errors.Is(err, ErrNotAllowed) {
				t.Errorf("without %s: %v", id.Allow[i], err)
			}
		}
	})
}

func newIdentity() Identity { return Identity{Name: "copy", UID: "u2", LogRoot: "/logs"} }

func TestHostilePrivileged(t *testing.T) {
	forgery{name: "container", app: func(c *criapi.ContainerConfig) {
		c.Linux.SecurityContext.Privileged = true
	}, allow: []string{"privileged"}}.refused(t)
	forgery{name: "sandbox", sandbox: func(s *criapi.PodSandboxConfig) {
		s.Linux.SecurityContext.Privileged = true
	}, allow: []string{"privileged"}}.refused(t)
}

func TestHostileNamespaces(t *testing.T) {
	node := &criapi.NamespaceOption{
		Network: criapi.NamespaceMode_NODE, Pid: criapi.NamespaceMode_NODE, Ipc: criapi.NamespaceMode_NODE,
	}
	all := []string{"host-namespace:network", "host-namespace:pid", "host-namespace:ipc"}
	forgery{name: "sandbox", sandbox: func(s *criapi.PodSandboxConfig) {
		s.Linux.SecurityContext.NamespaceOptions = node
	}, allow: all}.refused(t)
	forgery{name: "container", app: func(c *criapi.ContainerConfig) {
		c.Linux.SecurityContext.NamespaceOptions = node
	}, allow: all}.refused(t)
	forgery{name: "users", app: func(c *criapi.ContainerConfig) {
		c.Linux.SecurityContext.NamespaceOptions = &criapi.NamespaceOption{UsernsOptions: &criapi.UserNamespace{
			Uids: []*criapi.IDMapping{{Length: 1 << 31}},
		}}
	}, allow: []string{"user-namespace"}}.refused(t)
	rec := forgery{app: func(c *criapi.ContainerConfig) {
		c.Linux.SecurityContext.NamespaceOptions = &criapi.NamespaceOption{
			Pid: criapi.NamespaceMode_TARGET, TargetId: "other",
		}
	}}.record(t)
	if _, err := Of(rec, newIdentity()); err == nil || !strings.Contains(err.Error(), "pid namespace") {
		t.Errorf("the processes of another container: %v", err)
	}
}

func TestHostileMounts(t *testing.T) {
	for _, path := range []string{
		"/", "/etc", "/run/containerd", "/var/lib/kubelet/pods/u1/volumes/kubernetes.io~secret/token",
		"/var/lib/kubelet/pods/u2/volumes/kubernetes.io~empty-dir/x", "/var/lib/diapause/store",
	} {
		forgery{name: path, app: func(c *criapi.ContainerConfig) {
			c.Mounts = []*criapi.Mount{{HostPath: path, ContainerPath: "/host", SelinuxRelabel: true}}
		}, allow: []string{"host-path:" + path}}.refused(t)
	}
	for _, path := range []string{"/data/../etc", "/data/x", "/data/.."} {
		id := newIdentity()
		id.Allow = []Allowance{"host-path:/data"}
		rec := forgery{app: func(c *criapi.ContainerConfig) {
			c.Mounts = []*criapi.Mount{{HostPath: path, ContainerPath: "/host"}}
		}}.record(t)
		if _, err := Of(rec, id); !errors.Is(err, ErrNotAllowed) {
			t.Errorf("with an allowance for /data, %s: %v", path, err)
		}
	}
	for _, m := range []*criapi.Mount{
		{HostPath: "etc", ContainerPath: "/host"},
		{ContainerPath: "/host"},
		{ContainerPath: "/host", Image: &criapi.ImageSpec{Image: "x"}, ImageSubPath: "../.."},
		{HostPath: "/data", ContainerPath: "/host", MountOptions: []string{"lowerdir=/"}},
	} {
		rec := forgery{app: func(c *criapi.ContainerConfig) { c.Mounts = []*criapi.Mount{m} }}.record(t)
		if p, err := Of(rec, newIdentity()); err == nil || errors.Is(err, ErrNotAllowed) {
			t.Errorf("mount %v: plan %+v, %v", m, p, err)
		}
	}
}

// TestHostileMountFields: also a mount that an operator allows does not relabel the node's files.
func TestHostileMountFields(t *testing.T) {
	id := newIdentity()
	id.Allow = []Allowance{"host-path:/data"}
	p, err := Of(forgery{app: func(c *criapi.ContainerConfig) {
		c.Mounts = []*criapi.Mount{{
			HostPath: "/data/", ContainerPath: "/host", SelinuxRelabel: true, Readonly: true,
			Propagation: criapi.MountPropagation_PROPAGATION_BIDIRECTIONAL,
			UidMappings: []*criapi.IDMapping{{Length: 1 << 31}},
		}}
	}}.record(t), id)
	want := &criapi.Mount{
		HostPath: "/data", ContainerPath: "/host", Readonly: true,
		Propagation: criapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER,
	}
	if err != nil || !proto.Equal(p.Containers[0].Mounts[0], want) {
		t.Errorf("%v, want %v: %v", p, want, err)
	}
}

func TestHostileDevices(t *testing.T) {
	forgery{name: "device", app: func(c *criapi.ContainerConfig) {
		c.Devices = []*criapi.Device{{HostPath: "/dev/sda", ContainerPath: "/dev/x", Permissions: "rwm"}}
	}, allow: []string{"device:/dev/sda"}}.refused(t)
	forgery{name: "cdi", app: func(c *criapi.ContainerConfig) {
		c.CDIDevices = []*criapi.CDIDevice{{Name: "vendor.com/gpu=all"}}
	}, allow: []string{"cdi-device:vendor.com/gpu=all"}}.refused(t)
}

func TestHostileCapabilities(t *testing.T) {
	forgery{name: "added", app: func(c *criapi.ContainerConfig) {
		c.Linux.SecurityContext.Capabilities = &criapi.Capability{
			AddCapabilities: []string{"CHOWN", "cap_sys_admin", "ALL"}, AddAmbientCapabilities: []string{"NET_ADMIN"},
			DropCapabilities: []string{"KILL"},
		}
	}, allow: []string{"capability:SYS_ADMIN", "capability:ALL", "capability:NET_ADMIN"}}.refused(t)
}

func TestHostileProfiles(t *testing.T) {
	unconfined := &criapi.SecurityProfile{ProfileType: criapi.SecurityProfile_Unconfined}
	own := &criapi.SecurityProfile{ProfileType: criapi.SecurityProfile_Localhost, LocalhostRef: "/etc/shadow"}
	forgery{name: "unconfined", app: func(c *criapi.ContainerConfig) {
		c.Linux.SecurityContext.Seccomp, c.Linux.SecurityContext.Apparmor = unconfined, unconfined
	}, allow: []string{"seccomp:unconfined", "apparmor:unconfined"}}.refused(t)
	forgery{name: "own", sandbox: func(s *criapi.PodSandboxConfig) {
		s.Linux.SecurityContext.Seccomp, s.Linux.SecurityContext.Apparmor = own, own
	}, allow: []string{"seccomp:localhost//etc/shadow", "apparmor:localhost//etc/shadow"}}.refused(t)
	forgery{
		name: "by name", config: `{"metadata":{"name":"app"},"image":{"image":"i"},"linux":{"security_context":{
		"seccomp_profile_path":"unconfined","apparmor_profile":"localhost/x"}}}`,
		allow: []string{"seccomp:unconfined", "apparmor:localhost/x"},
	}.refused(t)
	forgery{name: "selinux", app: func(c *criapi.ContainerConfig) {
		c.Linux.SecurityContext.SelinuxOptions = &criapi.SELinuxOption{Type: "spc_t"}
	}, allow: []string{"selinux:::spc_t:"}}.refused(t)
}

// TestHostileAnnotations: annotations are settings of other programs. Those of gVisor that no pod may set are left out.
func TestHostileAnnotations(t *testing.T) {
	forgery{name: "sandbox", sandbox: func(s *criapi.PodSandboxConfig) {
		s.Annotations = map[string]string{"cdi.k8s.io/x": "vendor.com/gpu=all"}
	}, allow: []string{"annotation:cdi.k8s.io/x"}}.refused(t)
	forgery{name: "container", app: func(c *criapi.ContainerConfig) {
		c.Annotations = map[string]string{"io.kubernetes.cri.rdt-class": "x"}
	}, allow: []string{"annotation:io.kubernetes.cri.rdt-class"}}.refused(t)
	p, err := Of(forgery{sandbox: func(s *criapi.PodSandboxConfig) {
		s.Annotations = map[string]string{
			"dev.gvisor.spec.rootfs.source": "/", "dev.gvisor.internal.checkpoint.path": "/etc",
			"podsnapshot.gke.io/ps-name": "other", "diapause.dev/restore-from": "other/one",
			"dev.gvisor.internal.checkpoint.enable": "true", "dev.gvisor.spec.mount.data.share": "pod",
			"kubernetes.io/config.source": "api",
		}
	}}.record(t), newIdentity())
	want := map[string]string{
		"dev.gvisor.internal.checkpoint.enable": "true", "dev.gvisor.spec.mount.data.share": "pod",
	}
	if err != nil || fmt.Sprint(p.Sandbox.Annotations) != fmt.Sprint(want) {
		t.Errorf("annotations %v, %v", p, err)
	}
}

// TestHostileLabels: containerd has a program of the node run for some labels (containerd.io/restart.loguri), and keeps
// data for others.
func TestHostileLabels(t *testing.T) {
	forgery{name: "container", app: func(c *criapi.ContainerConfig) {
		c.Labels = map[string]string{
			"app": "web", "io.kubernetes.container.name": "app", "app.kubernetes.io/name": "web",
			"containerd.io/restart.loguri": "binary:///bin/sh", "io.cri-containerd.kind": "sandbox",
		}
	}, allow: []string{"label:containerd.io/restart.loguri", "label:io.cri-containerd.kind"}}.refused(t)
	forgery{name: "sandbox", sandbox: func(s *criapi.PodSandboxConfig) {
		s.Labels = map[string]string{"containerd.io/gc.root": "x"}
	}, allow: []string{"label:containerd.io/gc.root"}}.refused(t)
}

func TestHostileSysctls(t *testing.T) {
	forgery{name: "of the node", sandbox: func(s *criapi.PodSandboxConfig) {
		s.Linux.Sysctls = map[string]string{"kernel.core_pattern": "|/bin/sh", "net.ipv4.tcp_syncookies": "1"}
	}, allow: []string{"sysctl:kernel.core_pattern"}}.refused(t)
}

// TestHostileCgroup: a pod gets a cgroup of its own, in none of somebody else's.
func TestHostileCgroup(t *testing.T) {
	for _, path := range []string{
		"/kubepods", "/kubepods/podother/podu1", "/a-podx.slice/u1", "/system.slice/x.service/u1",
	} {
		f := forgery{sandbox: func(s *criapi.PodSandboxConfig) { s.Linux.CgroupParent = path }}
		id := newIdentity()
		id.Occupied = func(dir string) bool { return dir == "/system.slice/x.service" }
		if _, err := Of(f.record(t), id); !errors.Is(err, ErrNotAllowed) ||
			!strings.Contains(err.Error(), "--allow=cgroup-parent:"+path) {
			t.Errorf("%s: %v", path, err)
		}
		id.Allow = []Allowance{Allowance("cgroup-parent:" + path)}
		if _, err := Of(f.record(t), id); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	for path, want := range map[string]string{
		"/kubepods/burstable/podu1":  "/kubepods/burstable/podu2",
		"/kubepods/x/../podu1/":      "/kubepods/podu2",
		"/a.slice/a-podu_1.slice":    "/a.slice/a-podu_2.slice",
		"/../../kubepods/pod-u1":     "/kubepods/pod-u2",
		"":                           "",
		"/podu1":                     "/podu2",
		"/kubepods.slice/b-u1.slice": "/kubepods.slice/b-u2.slice",
	} {
		id := newIdentity()
		rec := forgery{sandbox: func(s *criapi.PodSandboxConfig) {
			s.Linux.CgroupParent = path
			if strings.Contains(path, "_") {
				s.Metadata.Uid, id.UID = "u-1", "u-2"
			}
		}}.record(t)
		p, err := Of(rec, id)
		if err != nil || p.Sandbox.Linux.CgroupParent != want {
			t.Errorf("%s: %+v, %v, want %s", path, p, err, want)
		}
	}
}

func TestHostileResources(t *testing.T) {
	forgery{name: "protected memory", app: func(c *criapi.ContainerConfig) {
		c.Linux.Resources.Unified = map[string]string{"memory.min": "max", "memory.high": "1000"}
	}, allow: []string{"resource:memory.min"}}.refused(t)
	for _, r := range []*criapi.LinuxContainerResources{
		{Unified: map[string]string{"../cgroup.procs": "1"}},
		{HugepageLimits: []*criapi.HugepageLimit{{PageSize: "../x"}}},
		{CpusetCpus: "0\n"},
		{CpusetMems: strings.Repeat("1,", 10_000)},
	} {
		rec := forgery{app: func(c *criapi.ContainerConfig) { c.Linux.Resources = r }}.record(t)
		if _, err := Of(rec, newIdentity()); err == nil {
			t.Errorf("resources %v are taken", r)
		}
	}
	p, err := Of(forgery{app: func(c *criapi.ContainerConfig) { c.Linux.Resources.OomScoreAdj = -1000 }}.record(t),
		newIdentity())
	if err != nil || p.Containers[0].Linux.Resources.OomScoreAdj != 0 {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestHostileLogPath(t *testing.T) {
	for _, path := range []string{"/etc/cron.d/x", "../../x", "a/../../../etc/x"} {
		rec := forgery{app: func(c *criapi.ContainerConfig) { c.LogPath = path }}.record(t)
		if _, err := Of(rec, newIdentity()); err == nil || !strings.Contains(err.Error(), "log path") {
			t.Errorf("%s: %v", path, err)
		}
	}
	rec := forgery{sandbox: func(s *criapi.PodSandboxConfig) { s.LogDirectory = "/etc" }}.record(t)
	if p, err := Of(rec, newIdentity()); err != nil || p.Sandbox.LogDirectory != "/logs/default_copy_u2" {
		t.Errorf("log directory: %+v, %v", p, err)
	}
}

// TestHostileSizes: a record is bounded before it is decoded, and so is an error about it.
func TestHostileSizes(t *testing.T) {
	rec := forgery{app: func(c *criapi.ContainerConfig) {
		c.Args = []string{strings.Repeat("x", maxConfig)}
	}}.record(t)
	if _, err := Of(rec, newIdentity()); err == nil || !strings.Contains(err.Error(), "want at most") {
		t.Errorf("a large configuration: %v", err)
	}
	rec = forgery{sandbox: func(s *criapi.PodSandboxConfig) {
		s.Annotations = make(map[string]string)
		for i := range 10_000 {
			s.Annotations[fmt.Sprintf("example.com/%d-\x1b[2J-%s", i, strings.Repeat("x", 100))] = ""
		}
	}}.record(t)
	_, err := Of(rec, newIdentity())
	if !errors.Is(err, ErrNotAllowed) || len(err.Error()) > 20_000 || strings.Contains(err.Error(), "\x1b") ||
		!strings.Contains(err.Error(), "and 9980 more") {
		t.Errorf("many annotations: %d bytes: %.300v", len(err.Error()), err)
	}
}

// TestHostileField: what a containerd of tomorrow may know is not passed over in silence.
func TestHostileField(t *testing.T) {
	rec := recorded(t)
	rec.Containers[0].Config = []byte(`{"metadata":{"name":"a"},"image":{"image":"i"},"host_everything":true}`)
	if _, err := Of(rec, newIdentity()); err == nil || !strings.Contains(err.Error(), "host_everything") {
		t.Errorf("error %v", err)
	}
}

// TestHostileContainerName: names are parts of messages, ids and paths.
func TestHostileContainerName(t *testing.T) {
	for _, name := range []string{"../x", "a b", "\x1b[2J", strings.Repeat("x", 300)} {
		rec := forgery{app: func(c *criapi.ContainerConfig) { c.Metadata.Name = name }}.record(t)
		if _, err := Of(rec, newIdentity()); err == nil {
			t.Errorf("a container is called %.20q", name)
		}
	}
}

func TestParseAllowances(t *testing.T) {
	good := []string{"privileged", "user-namespace", "host-path:/data", "annotation:a:b"}
	if all, err := ParseAllowances(good); err != nil || fmt.Sprint(all) != fmt.Sprint(good) {
		t.Errorf("%v, %v", all, err)
	}
	for _, bad := range []string{"", "privileged:yes", "host-path", "host-path:", "everything", "all:x"} {
		all, err := ParseAllowances([]string{"privileged", bad})
		if err == nil || !strings.Contains(err.Error(), "host-path") {
			t.Errorf("%q: %v, %v", bad, all, err)
		}
	}
}
