package sleeppolicy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"diapause.dev/agent/idle"
	"diapause.dev/agent/kube/notice"
	"diapause.dev/agent/kube/podspec"
	"diapause.dev/agent/kube/rules"
	sleepv1alpha1 "diapause.dev/api/sleeppolicy/v1alpha1"
	"diapause.dev/runsc/traffic"
)

// Verdict says whether a policy can be used, and returns the reason and the message for its condition Ready. All are
// the policies of its namespace.
func Verdict(p *sleepv1alpha1.SleepPolicy, all []sleepv1alpha1.SleepPolicy) (ok bool, reason, message string) {
	if _, err := metav1.LabelSelectorAsSelector(&p.Spec.Selector); err != nil {
		return false, sleepv1alpha1.ReasonInvalid, fmt.Sprintf(notice.InvalidSelector, err)
	}
	if _, err := ruleOf(p, nil); err != nil {
		return false, sleepv1alpha1.ReasonInvalid, err.Error()
	}
	var others []string
	for i := range all {
		o := &all[i]
		if o.Namespace == p.Namespace && o.Name != p.Name && rules.Overlap(&p.Spec.Selector, &o.Spec.Selector) {
			others = append(others, o.Name)
		}
	}
	if len(others) > 0 {
		slices.Sort(others)
		return true, sleepv1alpha1.ReasonOverlapping, fmt.Sprintf(notice.PoliciesOverlap, strings.Join(others, ", "))
	}
	return true, sleepv1alpha1.ReasonValid, notice.PolicyUsable
}

// Selected reports whether any of the policies selects a pod.
func Selected(pod *corev1.Pod, all []sleepv1alpha1.SleepPolicy) bool {
	some, _ := selecting(pod, all)
	return len(some) > 0
}

// selecting returns the policies that select a pod, and their names for people.
func selecting(pod *corev1.Pod, all []sleepv1alpha1.SleepPolicy) (out []*sleepv1alpha1.SleepPolicy, names string) {
	var list []string
	for i := range all {
		s, err := metav1.LabelSelectorAsSelector(&all[i].Spec.Selector)
		if err == nil && s.Matches(labels.Set(pod.Labels)) {
			out, list = append(out, &all[i]), append(list, all[i].Name)
		}
	}
	slices.Sort(list)
	slices.SortFunc(out, func(a, b *sleepv1alpha1.SleepPolicy) int { return strings.Compare(a.Name, b.Name) })
	return out, strings.Join(list, ", ")
}

// wakesToEnd reports whether a policy has pods woken that are told to end in their sleep.
func wakesToEnd(p *sleepv1alpha1.SleepPolicy) bool {
	return p.Spec.EndWithoutWaking != nil && !*p.Spec.EndWithoutWaking
}

// What one probe sends to a pod, in packets: the connection is made, used and ended. With a kubelet of 1.36, a probe by
// HTTP and one by TCP were 13 together; a little room is left.
const (
	packetsTCP  = 5  // SYN, ACK, and the end
	packetsHTTP = 9  // SYN, ACK, request, ACKs, and the end
	packetsTLS  = 16 // the same with the handshake of TLS
	packetsGRPC = 14 // with the settings of HTTP/2
)

// probed returns the containers of a pod that the kubelet probes for as long as it runs: native sidecars, too.
func probed(pod *corev1.Pod) []corev1.Container {
	all := slices.Clone(pod.Spec.Containers)
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; podspec.Sidecar(c) {
			all = append(all, *c)
		}
	}
	return all
}

// ruleOf returns what a policy asks for, for a pod with these containers.
func ruleOf(p *sleepv1alpha1.SleepPolicy, containers []corev1.Container) (r idle.Rule, err error) {
	if r.After, err = time.ParseDuration(p.Spec.IdleAfter); err != nil {
		return r, fmt.Errorf("spec.idleAfter: %w", err)
	}
	if p.Spec.MinAwake != "" {
		if r.MinAwake, err = time.ParseDuration(p.Spec.MinAwake); err != nil {
			return r, fmt.Errorf("spec.minAwake: %w", err)
		}
	}
	if p.Spec.Idle.AnswerWithin != "" {
		if r.AnswerWithin, err = time.ParseDuration(p.Spec.Idle.AnswerWithin); err != nil {
			return r, fmt.Errorf("spec.idle.answerWithin: %w", err)
		}
	}
	if r.Ignored, err = ignored(p.Spec.Ignore); err != nil {
		return r, err
	}
	r.CPU, r.Packets = float64(p.Spec.Idle.CPUMillicores)/1000, float64(p.Spec.Idle.PacketsPerMinute)
	for i := range containers {
		for _, probe := range []*corev1.Probe{containers[i].LivenessProbe, containers[i].ReadinessProbe} {
			if n := packetsOf(probe); n > 0 {
				every := time.Duration(probe.PeriodSeconds) * time.Second
				r.Probes = append(r.Probes, idle.Probe{Every: every, Packets: n})
			}
		}
	}
	return r, nil
}

// ignored returns the traffic that does not count.
func ignored(all []sleepv1alpha1.IgnoredTraffic) (out []traffic.Ignored, err error) {
	for i, x := range all {
		t := traffic.Ignored{Port: uint16(x.Port)}
		if x.From != "" {
			if t.From, err = netip.ParsePrefix(x.From); err != nil {
				return nil, fmt.Errorf("spec.ignore[%d].from: %.64q is no block of addresses: write one as in 10.1.2.0/24 or "+
					"fd00::5/128", i, x.From)
			}
		}
		out = append(out, t)
	}
	if _, err := traffic.NewFilter(out); err != nil {
		return nil, fmt.Errorf("spec.ignore: %w", err)
	}
	return out, nil
}

// packetsOf returns what a probe sends to a pod, which may be nil.
func packetsOf(p *corev1.Probe) float64 {
	switch {
	case p == nil:
		return 0
	case p.HTTPGet != nil && p.HTTPGet.Host == "" && p.HTTPGet.Scheme == corev1.URISchemeHTTPS:
		return packetsTLS
	case p.HTTPGet != nil && p.HTTPGet.Host == "":
		return packetsHTTP
	case p.TCPSocket != nil && p.TCPSocket.Host == "":
		return packetsTCP
	case p.GRPC != nil:
		return packetsGRPC
	}
	return 0
}
