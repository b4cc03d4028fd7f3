package view

import (
	"fmt"
	"io"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/cmd/internal/table"
)

// Pod is a restored pod.
type Pod struct {
	ID        string  `json:"id"`
	Name      string  `json:"name"`
	Namespace string  `json:"namespace"`
	IP        string  `json:"ip"`
	TookMS    float64 `json:"took_ms"`
	Loaded    bool    `json:"loaded"` // all its memory is loaded
}

// Restore is the result of a restore. Error says why pods are missing.
type Restore struct {
	Snapshot string `json:"snapshot"`
	Pods     []Pod  `json:"pods"`
	Failure
}

// Add adds an event about a pod. Loaded says that all its memory is loaded.
func (r *Restore) Add(p *localv1.RestoredPod, loaded bool) Pod {
	for i := range r.Pods {
		if r.Pods[i].ID == p.GetId() {
			r.Pods[i].Loaded = r.Pods[i].Loaded || loaded
			return r.Pods[i]
		}
	}
	pod := Pod{p.GetId(), p.GetName(), p.GetNamespace(), p.GetIp(), milliseconds(p.GetTook()), loaded}
	r.Pods = append(r.Pods, pod)
	return pod
}

// podRow has fixed widths, because its rows are printed one by one as pods come up.
const podRow = "%-14s  %-36s  %-15s  %s\n"

// PodHeader writes the header of the rows of pods.
func PodHeader(w io.Writer) {
	fmt.Fprintf(w, podRow, "POD ID", "POD", "IP", "TOOK")
}

// Row writes the row of one pod, as soon as it runs.
func (p Pod) Row(w io.Writer) {
	id, name, ip := table.Cell(shorten(p.ID)), table.Cell(p.Namespace+"/"+p.Name), table.Cell(orDash(p.IP))
	fmt.Fprintf(w, podRow, id, name, ip, ms(p.TookMS))
}

// Table writes a row for each pod.
func (r *Restore) Table(w io.Writer) error {
	PodHeader(w)
	for _, p := range r.Pods {
		p.Row(w)
	}
	return nil
}

// shorten cuts an id to a length that tells the ids of one node apart.
func shorten(id string) string { return id[:min(len(id), 13)] }
