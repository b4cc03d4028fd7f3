package view

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"diapause.dev/cmd/internal/table"
	"diapause.dev/runsc/traffic"
)

// Traffic is what has come for a pod.
type Traffic struct {
	Pod     string  `json:"pod"`
	Seconds float64 `json:"seconds"` // for which packets were counted
	Flows   []Flow  `json:"flows"`   // those of most packets first
}

// Flow is a kind of packet.
type Flow struct {
	Protocol  string  `json:"protocol"`
	From      string  `json:"from"`      // an address; empty: the packets name none
	Port      uint16  `json:"port"`      // of the pod; 0: none
	Broadcast bool    `json:"broadcast"` // it goes to many
	Packets   int     `json:"packets"`
	PerMinute float64 `json:"per_minute"`
}

// NewTraffic converts what was counted in that time.
func NewTraffic(pod string, during time.Duration, all []traffic.Count) Traffic {
	v := Traffic{Pod: pod, Seconds: during.Seconds(), Flows: []Flow{}}
	for _, c := range all {
		f := Flow{Protocol: c.Protocol, Port: c.Port, Broadcast: c.Broadcast, Packets: c.Packets}
		if c.From.IsValid() {
			f.From = c.From.String()
		}
		f.PerMinute = float64(c.Packets) / during.Minutes()
		v.Flows = append(v.Flows, f)
	}
	return v
}

// Table writes a row for each kind of packet.
func (v Traffic) Table(w io.Writer) error {
	if len(v.Flows) == 0 {
		_, err := fmt.Fprintf(w, "no packet came for %s within %.0f s\n", v.Pod, v.Seconds)
		return err
	}
	r := table.New(w, "PROTOCOL", "FROM", "FOR PORT", "TO", "PACKETS", "PER MINUTE")
	for _, f := range v.Flows {
		port, to := "-", "the pod"
		if f.Port != 0 {
			port = strconv.Itoa(int(f.Port))
		}
		if f.Broadcast {
			to = "many"
		}
		r.Add(f.Protocol, orDash(f.From), port, to, strconv.Itoa(f.Packets), fmt.Sprintf("%.0f", f.PerMinute))
	}
	return r.Flush()
}
