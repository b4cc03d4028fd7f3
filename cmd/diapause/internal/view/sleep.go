package view

import (
	"fmt"
	"io"
	"time"

	localv1 "diapause.dev/api/local/v1"
)

// Slept is the answer of "sleep".
type Slept struct {
	Request  string   `json:"request"`
	Snapshot Snapshot `json:"snapshot"` // that the pod is woken from
}

// Table writes what became of the pod.
func (s Slept) Table(w io.Writer) error {
	_, err := fmt.Fprintf(w, "%s/%s sleeps, saved as %s\n", s.Snapshot.Namespace, s.Snapshot.OriginPod, s.Snapshot.Key())
	return err
}

// Woken is the answer of "wake".
type Woken struct {
	Pod    string  `json:"pod"`         // namespace/name
	Slept  string  `json:"slept_since"` // RFC 3339; empty: it did not sleep
	TookMS float64 `json:"took_ms"`
}

// NewWoken converts the agent's answer.
func NewWoken(r *localv1.WakeResponse) Woken {
	return Woken{Pod: r.GetPod(), Slept: since(r.GetSleptSince()), TookMS: milliseconds(r.GetTook())}
}

// Table writes what became of the pod.
func (v Woken) Table(w io.Writer) error {
	if v.Slept == "" {
		_, err := fmt.Fprintf(w, "%s did not sleep\n", v.Pod)
		return err
	}
	took := time.Duration(v.TookMS * float64(time.Millisecond)).Round(time.Millisecond)
	_, err := fmt.Fprintf(w, "%s is awake, after %v; it slept since %s\n", v.Pod, took, v.Slept)
	return err
}
