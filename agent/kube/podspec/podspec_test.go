package podspec_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"diapause.dev/agent/kube/podspec"
)

// pod returns a pod with a bit of everything, as the API server admits it.
func pod() *corev1.Pod {
	claim := &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}
	conf := &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "conf"}}
	stop := &corev1.ExecAction{Command: []string{"stop"}}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web-1", Namespace: "default", UID: "u1",
			Labels:      map[string]string{"app": "web", "agents.x-k8s.io/sandbox-name-hash": "01234567"},
			Annotations: map[string]string{"dev.gvisor.spec.rootfs.source": "/x", "example.com/a": "1"},
		},
		Spec: corev1.PodSpec{
			RuntimeClassName: new("diapause"), NodeName: "n1", Hostname: "web-1", ServiceAccountName: "default",
			SecurityContext: &corev1.PodSecurityContext{},
			Volumes: []corev1.Volume{
				{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: claim}},
				{Name: "conf", VolumeSource: corev1.VolumeSource{ConfigMap: conf}},
				{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv"}}},
				{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
				{Name: "key", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "key"}}},
				{Name: "kube-api-access-abcde", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}},
			},
			InitContainers: []corev1.Container{
				{Name: "init", Image: "init:1"},
				{Name: "side", Image: "side:1", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)},
			},
			Containers: []corev1.Container{{
				Name: "app", Image: "app:1", Command: []string{"/app"}, Args: []string{"-v"}, WorkingDir: "/",
				Env: []corev1.EnvVar{{Name: "A", Value: "1"}},
				Ports: []corev1.ContainerPort{
					{Name: "http", ContainerPort: 80, Protocol: "TCP"},
					{ContainerPort: 53, Protocol: "UDP"},
				},
				VolumeMounts: []corev1.VolumeMount{
					{Name: "data", MountPath: "/data"},
					{Name: "conf", MountPath: "/etc/app", ReadOnly: true},
					{Name: "kube-api-access-abcde", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true},
				},
				Lifecycle:                &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: stop}},
				TerminationMessagePath:   "/dev/termination-log",
				TerminationMessagePolicy: "File",
				SecurityContext:          &corev1.SecurityContext{RunAsUser: new(int64(7))},
			}},
		},
	}
}

// app returns the pod's container.
func app(p *corev1.Pod) *corev1.Container { return &p.Spec.Containers[0] }

// TestWhatCounts: each change gives another hash, and is described in words.
func TestWhatCounts(t *testing.T) {
	for want, change := range map[string]func(*corev1.Pod){
		`annotation dev.gvisor.flag.debug differs`: func(p *corev1.Pod) { p.Annotations["dev.gvisor.flag.debug"] = "true" },
		`jobCompletionIndex differs ("" in the snapshot, "3" in the pod)`: func(p *corev1.Pod) {
			p.Labels["batch.kubernetes.io/job-completion-index"] = "3"
		},
		`runtimeClassName differs ("diapause" in the snapshot, "" in the pod)`: func(p *corev1.Pod) {
			p.Spec.RuntimeClassName = nil
		},
		`securityContext differs`:       func(p *corev1.Pod) { p.Spec.SecurityContext.FSGroup = new(int64(1)) },
		`hostNetwork differs`:           func(p *corev1.Pod) { p.Spec.HostNetwork = true },
		`hostPID differs`:               func(p *corev1.Pod) { p.Spec.HostPID = true },
		`hostIPC differs`:               func(p *corev1.Pod) { p.Spec.HostIPC = true },
		`shareProcessNamespace differs`: func(p *corev1.Pod) { p.Spec.ShareProcessNamespace = new(true) },
		`volume more is not in the snapshot`: func(p *corev1.Pod) {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "more"})
		},
		`volume key is not in the pod`: func(p *corev1.Pod) { p.Spec.Volumes = slices.Delete(p.Spec.Volumes, 4, 5) },
		`volume data: persistentVolumeClaim differs`: func(p *corev1.Pod) {
			p.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "other"
		},
		`volume conf: configMap differs`: func(p *corev1.Pod) { p.Spec.Volumes[1].ConfigMap.Name = "other" },
		`volume host: hostPath differs`:  func(p *corev1.Pod) { p.Spec.Volumes[2].HostPath.Path = "/other" },
		`volume tmp: source differs ("emptyDir" in the snapshot, "secret" in the pod)`: func(p *corev1.Pod) {
			p.Spec.Volumes[3].VolumeSource = corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{}}
		},
		`init container init: image differs ("init:1" in the snapshot, "init:2" in the pod)`: func(p *corev1.Pod) {
			p.Spec.InitContainers[0].Image = "init:2"
		},
		`init container side: sidecar differs`: func(p *corev1.Pod) { p.Spec.InitContainers[1].RestartPolicy = nil },
		`the order of initContainers differs`:  func(p *corev1.Pod) { slices.Reverse(p.Spec.InitContainers) },
		`container two is not in the snapshot`: func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "two"})
		},
		`container app: image differs ("app:1" in the snapshot, "app:2" in the pod)`: func(p *corev1.Pod) {
			app(p).Image = "app:2"
		},
		`container app: command differs`: func(p *corev1.Pod) { app(p).Command = []string{"/bin/sh"} },
		`container app: args differs`:    func(p *corev1.Pod) { app(p).Args = nil },
		`container app: workingDir differs ("/" in the snapshot, "/w" in the pod)`: func(p *corev1.Pod) {
			app(p).WorkingDir = "/w"
		},
		`container app: port 81/TCP is not in the snapshot; ` +
			`container app: port 80/TCP is not in the pod`: func(p *corev1.Pod) {
			app(p).Ports[0].ContainerPort = 81
		},
		`container app: port 80/TCP: name differs ("http" in the snapshot, "web" in the pod)`: func(p *corev1.Pod) {
			app(p).Ports[0].Name = "web"
		},
		`container app: mount /data: readOnly differs`: func(p *corev1.Pod) { app(p).VolumeMounts[0].ReadOnly = true },
		`container app: mount /data: subPath differs ("" in the snapshot, "x" in the pod)`: func(p *corev1.Pod) {
			app(p).VolumeMounts[0].SubPath = "x"
		},
		`container app: mount /data: name differs ("data" in the snapshot, "tmp" in the pod)`: func(p *corev1.Pod) {
			app(p).VolumeMounts[0].Name = "tmp"
		},
		`container app: mount /data: subPathExpr differs ("" in the snapshot, "$(A)" in the pod)`: func(p *corev1.Pod) {
			app(p).VolumeMounts[0].SubPathExpr = "$(A)"
		},
		`container app: mount /data: mountPropagation differs`: func(p *corev1.Pod) {
			app(p).VolumeMounts[0].MountPropagation = new(corev1.MountPropagationHostToContainer)
		},
		`container app: mount /data: recursiveReadOnly differs`: func(p *corev1.Pod) {
			app(p).VolumeMounts[0].RecursiveReadOnly = new(corev1.RecursiveReadOnlyEnabled)
		},
		`container app: devices differs`: func(p *corev1.Pod) {
			app(p).VolumeDevices = []corev1.VolumeDevice{{Name: "data"}}
		},
		`container app: postStart differs`: func(p *corev1.Pod) {
			app(p).Lifecycle.PostStart = &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"x"}}}
		},
		`container app: preStop differs`: func(p *corev1.Pod) { app(p).Lifecycle = nil },
		`container app: terminationMessagePath differs ` +
			`("/dev/termination-log" in the snapshot, "/x" in the pod)`: func(p *corev1.Pod) {
			app(p).TerminationMessagePath = "/x"
		},
		`container app: terminationMessagePolicy differs ` +
			`("File" in the snapshot, "FallbackToLogsOnError" in the pod)`: func(p *corev1.Pod) {
			app(p).TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
		},
		`container app: securityContext differs`: func(p *corev1.Pod) { app(p).SecurityContext.RunAsUser = new(int64(8)) },
		`container app: stdin differs`:           func(p *corev1.Pod) { app(p).Stdin = true },
		`container app: stdinOnce differs`:       func(p *corev1.Pod) { app(p).StdinOnce = true },
		`container app: tty differs`:             func(p *corev1.Pod) { app(p).TTY = true },
	} {
		t.Run(want, func(t *testing.T) {
			before, changed := podspec.Distil(pod()), pod()
			change(changed)
			after := podspec.Distil(changed)
			if before.Hash() == after.Hash() {
				t.Error("the hash is the same")
			}
			got := podspec.Differences(before, after)
			slices.Sort(got)
			wanted := strings.Split(want, "; ")
			slices.Sort(wanted)
			if !slices.Equal(got, wanted) {
				t.Errorf("differences %q, want %q", got, wanted)
			}
		})
	}
}

// TestWhatDoesNotCount: the hash stays.
func TestWhatDoesNotCount(t *testing.T) {
	want := podspec.Distil(pod())
	for name, change := range map[string]func(*corev1.Pod){
		"name and uid": func(p *corev1.Pod) { p.Name, p.UID = "web-2", "u2" },
		"label": func(p *corev1.Pod) {
			p.Labels["app"] = "x"
			delete(p.Labels,
				"agents.x-k8s.io/sandbox-name-hash")
		},
		"annotation": func(p *corev1.Pod) { p.Annotations["podsnapshot.gke.io/ps-name"] = "x" },
		"node": func(p *corev1.Pod) {
			p.Spec.NodeName, p.Spec.NodeSelector = "n2",
				map[string]string{"a": "b"}
		},
		"hostname":           func(p *corev1.Pod) { p.Spec.Hostname, p.Spec.Subdomain = "web-2", "x" },
		"environment":        func(p *corev1.Pod) { app(p).Env[0].Value = "2" },
		"service account":    func(p *corev1.Pod) { p.Spec.ServiceAccountName = "other" }, // compared separately
		"empty context":      func(p *corev1.Pod) { p.Spec.SecurityContext = nil },
		"empty args":         func(p *corev1.Pod) { p.Spec.InitContainers[0].Args = []string{} },
		"restart policy":     func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever },
		"pull policy":        func(p *corev1.Pod) { app(p).ImagePullPolicy = corev1.PullAlways },
		"host port":          func(p *corev1.Pod) { app(p).Ports[0].HostPort = 8080 },
		"order of volumes":   func(p *corev1.Pod) { slices.Reverse(p.Spec.Volumes) },
		"order of mounts":    func(p *corev1.Pod) { slices.Reverse(app(p).VolumeMounts) },
		"order of ports":     func(p *corev1.Pod) { slices.Reverse(app(p).Ports) },
		"which secret":       func(p *corev1.Pod) { p.Spec.Volumes[4].Secret.SecretName = "other" },
		"size of emptyDir":   func(p *corev1.Pod) { p.Spec.Volumes[3].EmptyDir.SizeLimit = new(resource.MustParse("1Mi")) },
		"status":             func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning },
		"ephemeral":          func(p *corev1.Pod) { p.Spec.EphemeralContainers = make([]corev1.EphemeralContainer, 1) },
		"tolerations":        func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Key: "x"}} },
		"termination period": func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(5)) },
		"probe": func(p *corev1.Pod) {
			socket := &corev1.TCPSocketAction{Port: intstr.FromInt32(1)}
			app(p).ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: socket}}
		},
		"resources": func(p *corev1.Pod) {
			app(p).Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
		},
		"name of the token's volume": func(p *corev1.Pod) {
			p.Spec.Volumes[5].Name, app(p).VolumeMounts[2].Name = "kube-api-access-zz9z9", "kube-api-access-zz9z9"
		},
	} {
		t.Run(name, func(t *testing.T) {
			changed := pod()
			change(changed)
			got := podspec.Distil(changed)
			if got.Hash() != want.Hash() {
				t.Errorf("another hash: %q", podspec.Differences(want, got))
			}
			if d := podspec.Differences(want, got); len(d) > 0 {
				t.Errorf("differences %q", d)
			}
		})
	}
}

// TestTokenVolumeName: only the name of the API server's own volume does not count.
func TestTokenVolumeName(t *testing.T) {
	changed := pod()
	changed.Spec.Volumes[0].Name, app(changed).VolumeMounts[0].Name = "kube-api-access-fffff", "kube-api-access-fffff"
	if podspec.Distil(pod()).Hash() == podspec.Distil(changed).Hash() {
		t.Error("a claim under such a name does not count")
	}
}

// TestEncodingStays: the encoding must not change, because hashes are compared with those of older agents.
func TestEncodingStays(t *testing.T) {
	const want = "v1:38e5d23b5c31b2db96568faf3d746aa5663d9ed27e1f6a1326b67ded836a48fe"
	s := podspec.Distil(pod())
	if got := s.Hash(); got != want {
		t.Errorf("hash %s, want %s: another encoding asks for another version\n%s", got, want, s.Encode())
	}
}

func TestDecode(t *testing.T) {
	s := podspec.Distil(pod())
	got, err := podspec.Decode(s.Encode(), s.Hash())
	if err != nil {
		t.Fatal(err)
	}
	if d := podspec.Differences(s, got); len(d) > 0 || got.Hash() != s.Hash() {
		t.Errorf("decoded spec differs: %q", d)
	}
	for name, c := range map[string]struct {
		b    []byte
		hash string
	}{
		"no JSON":    {[]byte("x"), s.Hash()},
		"other hash": {s.Encode(), "v1:00"},
		"too large":  {make([]byte, podspec.MaxEncoded+1), s.Hash()},
	} {
		if _, err := podspec.Decode(c.b, c.hash); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestManyDifferencesAreBounded(t *testing.T) {
	changed := pod()
	for i := range 100 {
		changed.Spec.Containers = append(changed.Spec.Containers, corev1.Container{Name: fmt.Sprint("c", i)})
	}
	got := podspec.Differences(podspec.Distil(pod()), podspec.Distil(changed))
	if len(got) != 9 || got[8] != "92 more differences" {
		t.Errorf("got %q", got)
	}
}

// FuzzDecode: a spec that decodes has the given hash, and can be compared with any pod.
func FuzzDecode(f *testing.F) {
	f.Add(podspec.Distil(pod()).Encode())
	f.Add([]byte(`{"containers":[{"name":"a","ports":[{"containerPort":1},{"containerPort":1}]},{"name":"a"}],` +
		`"annotations":{"":"x"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := podspec.Decode(b, "v1:00"); err == nil {
			t.Fatal("decoded under a hash that it cannot have")
		}
		s := new(podspec.Spec)
		if json.Unmarshal(b, s) != nil {
			return
		}
		again, err := podspec.Decode(s.Encode(), s.Hash())
		if err != nil {
			t.Fatalf("its own encoding is refused: %v", err)
		}
		podspec.Differences(again, podspec.Distil(pod()))
		podspec.Differences(podspec.Distil(pod()), again)
	})
}
