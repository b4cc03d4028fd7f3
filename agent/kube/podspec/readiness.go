package podspec

import (
	"net/url"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	localv1 "diapause.dev/api/local/v1"
)

// ReadinessProbes returns the readiness probes by which the kubelet asks a pod over the network. Those are left out
// that cannot be told from a liveness probe of the pod: if they failed, so would that.
func ReadinessProbes(pod *corev1.Pod) (all []*localv1.ReadinessProbe) {
	var live, ready []*localv1.ReadinessProbe
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			live = append(live, networkProbe(&list[i], list[i].LivenessProbe)...)
			ready = append(ready, networkProbe(&list[i], list[i].ReadinessProbe)...)
		}
	}
	for _, r := range ready {
		if !confused(r, live) {
			all = append(all, r)
		}
	}
	return all
}

// confused reports whether a readiness probe looks like one of these liveness probes. One by TCP says nothing but its
// port, and one by gRPC is told from others by its port alone.
func confused(r *localv1.ReadinessProbe, live []*localv1.ReadinessProbe) bool {
	for _, l := range live {
		same := l.GetKind() == r.GetKind() && l.GetTarget() == r.GetTarget()
		if l.GetPort() == r.GetPort() && (same || r.GetKind() == localv1.ReadinessProbe_TCP) {
			return true
		}
	}
	return false
}

// networkProbe returns a probe of a container, if it goes over the network to the pod.
func networkProbe(c *corev1.Container, p *corev1.Probe) []*localv1.ReadinessProbe {
	var (
		kind   localv1.ReadinessProbe_Kind
		port   intstr.IntOrString
		target string
	)
	switch {
	case p == nil:
		return nil
	case p.HTTPGet != nil && p.HTTPGet.Host == "":
		kind, port, target = localv1.ReadinessProbe_HTTP, p.HTTPGet.Port, requestTarget(p.HTTPGet.Path)
	case p.TCPSocket != nil && p.TCPSocket.Host == "":
		kind, port = localv1.ReadinessProbe_TCP, p.TCPSocket.Port
	case p.GRPC != nil:
		kind, port = localv1.ReadinessProbe_GRPC, intstr.FromInt32(p.GRPC.Port)
	default:
		return nil
	}
	number := portOf(c, port)
	if number == 0 {
		return nil
	}
	return []*localv1.ReadinessProbe{{Kind: kind, Port: number, Target: target}}
}

// portOf returns the number of a port that may be one of a container's by name; 0: there is none.
func portOf(c *corev1.Container, p intstr.IntOrString) uint32 {
	if p.Type == intstr.Int {
		return uint32(p.IntVal)
	}
	for i := range c.Ports {
		if c.Ports[i].Name == p.StrVal {
			return uint32(c.Ports[i].ContainerPort)
		}
	}
	return 0
}

// requestTarget returns what the kubelet asks for by HTTP: see formatURL in k8s.io/kubernetes/pkg/probe/http.
func requestTarget(path string) string {
	u, err := url.Parse(path)
	if err != nil {
		u = &url.URL{Path: path}
	}
	target := u.RequestURI()
	if target[0] != '/' {
		target = "/" + target
	}
	return target
}
