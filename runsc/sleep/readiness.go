package sleep

import (
	"bytes"
	"slices"
	"strings"
)

// Readiness is a readiness probe of the kubelet that fails while its pod cannot be woken.
type Readiness struct {
	Kind   ProbeKind `json:"kind"`
	Port   uint16    `json:"port"`
	Target string    `json:"target,omitempty"` // of ProbeHTTP: what is asked for, a path and perhaps a query
}

// ProbeKind is how the kubelet probes.
type ProbeKind string

// The kinds of probes over the network.
const (
	ProbeTCP  ProbeKind = "tcp"
	ProbeHTTP ProbeKind = "http" // HTTPS, too
	ProbeGRPC ProbeKind = "grpc"
)

// FailReadiness has these readiness probes fail from now on. All other probes succeed.
func (w *Waker) FailReadiness(all []Readiness) { w.failing.Store(&all) }

// failures are the readiness probes of one port that fail.
type failures []Readiness

func (f failures) of(kind ProbeKind) bool {
	return slices.ContainsFunc(f, func(r Readiness) bool { return r.Kind == kind })
}

// asked reports whether what begins an HTTP request belongs to a probe that fails.
func (f failures) asked(request []byte) bool {
	_, rest, _ := bytes.Cut(request, []byte(" "))
	target, _, ok := bytes.Cut(rest, []byte(" "))
	return ok && slices.ContainsFunc(f, func(r Readiness) bool {
		return r.Kind == ProbeHTTP && strings.TrimPrefix(r.Target, "/") == string(bytes.TrimPrefix(target, []byte("/")))
	})
}
