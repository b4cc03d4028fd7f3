package view

import (
	"fmt"
	"io"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/cmd/diapause/internal/progress"
	"diapause.dev/cmd/internal/table"
)

// Top is the sandboxes of the node.
type Top struct {
	Sandboxes []Sandbox `json:"sandboxes"`
}

// Sandbox is one sandbox with what is under way in it.
type Sandbox struct {
	ID          string `json:"id"`
	Pod         string `json:"pod"`
	Namespace   string `json:"namespace"`
	MemoryBytes int64  `json:"memory_bytes"`
	Request     string `json:"request"`
	Snapshot    string `json:"snapshot"` // that it was restored from
	Asleep      string `json:"asleep"`   // since when its pod sleeps, RFC 3339; empty: it runs
	Ready       bool   `json:"ready"`    // its pod sleeps, and its sandbox was created for its wake
}

// NewTop converts the agent's answer.
func NewTop(r *localv1.TopResponse) Top {
	t := Top{Sandboxes: []Sandbox{}}
	for _, s := range r.GetSandboxes() {
		t.Sandboxes = append(t.Sandboxes,
			Sandbox{
				s.GetId(), s.GetPod(), s.GetNamespace(), s.GetMemory(), s.GetRequest(), s.GetSnapshot(), since(s.GetAsleep()),
				s.GetReady(),
			})
	}
	return t
}

// since returns a time in RFC 3339, or "" for none.
func since(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().Local().Format(time.RFC3339)
}

// underWay returns what goes on in a sandbox: the request, or that its pod sleeps, and what its wake waits for.
func (s Sandbox) underWay() string {
	if s.Asleep == "" {
		return orDash(s.Request)
	}
	text := "asleep since " + s.Asleep
	if s.Ready {
		text += ", ready"
	}
	if s.Request != "" {
		text += "; " + s.Request
	}
	return text
}

// Table writes a row for each sandbox.
func (t Top) Table(w io.Writer) error {
	r := table.New(w, "POD ID", "POD", "MEMORY", "UNDER WAY", "RESTORED FROM")
	for _, s := range t.Sandboxes {
		r.Add(shorten(s.ID), s.Namespace+"/"+s.Pod, progress.Size(s.MemoryBytes), s.underWay(), orDash(s.Snapshot))
	}
	return r.Flush()
}

// Health is the answer of "doctor".
type Health struct {
	OK     bool    `json:"ok"`
	Checks []Check `json:"checks"`
}

// Check is one check.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}

// Add adds a check.
func (h *Health) Add(c Check) {
	h.OK = h.OK && c.OK
	h.Checks = append(h.Checks, c)
}

// Table writes a row for each check.
func (h *Health) Table(w io.Writer) error {
	r := table.New(w)
	for _, c := range h.Checks {
		r.Add(okWord(c.OK), c.Name, c.Detail)
	}
	return r.Flush()
}

// Version is the answer of "version".
type Version struct {
	Client string `json:"client"`
	Agent  string `json:"agent"` // empty: the agent does not answer
	Node   string `json:"node"`
	Store  string `json:"store"`
	Runsc  string `json:"runsc"`
}

// Table writes the versions.
func (v Version) Table(w io.Writer) error {
	if v.Agent == "" {
		_, err := fmt.Fprintf(w, "diapause  %s\nagent     does not answer\n", v.Client)
		return err
	}
	r := table.New(w)
	r.Add("diapause", v.Client)
	r.Add("agent", v.Agent)
	r.Add("node", v.Node)
	r.Add("store", v.Store)
	r.Add("runsc", v.Runsc)
	return r.Flush()
}
