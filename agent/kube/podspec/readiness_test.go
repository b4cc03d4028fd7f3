package podspec_test

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"diapause.dev/agent/kube/podspec"
)

// TestReadinessProbes: readiness probes over the network to the pod are known, unless they look like a liveness probe
// of any of its containers.
func TestReadinessProbes(t *testing.T) {
	get := func(path string, port intstr.IntOrString) *corev1.Probe {
		return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: port}}}
	}
	dial := func(port int) *corev1.Probe {
		action := &corev1.TCPSocketAction{Port: intstr.FromInt(port)}
		return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: action}}
	}
	call := func(port int32) *corev1.Probe {
		return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: port}}}
	}
	elsewhere := get("/", intstr.FromInt(80))
	elsewhere.HTTPGet.Host = "elsewhere"
	for name, tc := range map[string]struct {
		live, ready *corev1.Probe
		want        []string
	}{
		"none":            {dial(80), nil, nil},
		"exec":            {nil, &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: new(corev1.ExecAction)}}, nil},
		"HTTP":            {nil, get("ready?x=%20", intstr.FromInt(80)), []string{"HTTP 80 /ready?x=%20"}},
		"no path":         {nil, get("", intstr.FromInt(80)), []string{"HTTP 80 /"}},
		"malformed path":  {nil, get("%zz", intstr.FromInt(80)), []string{"HTTP 80 /%25zz"}},
		"a port's name":   {nil, get("/", intstr.FromString("web")), []string{"HTTP 8080 /"}},
		"an unknown name": {nil, get("/", intstr.FromString("what")), nil},
		"elsewhere":       {nil, elsewhere, nil},
		"other path":      {get("/live", intstr.FromInt(80)), get("/ready", intstr.FromInt(80)), []string{"HTTP 80 /ready"}},
		"same path":       {get("live", intstr.FromInt(80)), get("/live", intstr.FromInt(80)), nil},
		"same, by name":   {get("/", intstr.FromInt(8080)), get("/", intstr.FromString("web")), nil},
		"other port":      {get("/", intstr.FromInt(81)), get("/", intstr.FromInt(80)), []string{"HTTP 80 /"}},
		"TCP":             {dial(81), dial(80), []string{"TCP 80 "}},
		"TCP, same port":  {get("/", intstr.FromInt(80)), dial(80), nil},
		"HTTP, TCP lives": {dial(80), get("/", intstr.FromInt(80)), []string{"HTTP 80 /"}},
		"gRPC":            {dial(80), call(80), []string{"GRPC 80 "}},
		"gRPC, same":      {call(80), call(80), nil},
	} {
		pod := new(corev1.Pod)
		pod.Spec.InitContainers = []corev1.Container{{Name: "side", LivenessProbe: tc.live}}
		pod.Spec.Containers = []corev1.Container{{
			Name: "app", ReadinessProbe: tc.ready, Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 8080}},
		}}
		var got []string
		for _, p := range podspec.ReadinessProbes(pod) {
			got = append(got, fmt.Sprintf("%v %d %s", p.GetKind(), p.GetPort(), p.GetTarget()))
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
