package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"diapause.dev/test/bed"
)

// addWakes adds how often the agent has seen pods wake, and what became of the packets that came for them.
func (m *meter) addWakes(ctx context.Context, scenario string) error {
	text, err := bed.Fetch(ctx, "http://"+metricsAddress+"/metrics")
	if err != nil {
		return err
	}
	for _, x := range []struct{ metric, counter string }{
		{"woken_by_packets", `diapause_wakes_total{cause="packet"}`},
		{"woken_by_requests", `diapause_wakes_total{cause="request"}`},
		{"packets_delivered", `diapause_wake_packets_total{result="delivered"}`},
		{"packets_dropped", `diapause_wake_packets_total{result="dropped"}`},
	} {
		value, err := counter(string(text), x.counter)
		if err != nil {
			return err
		}
		m.figures.add(scenario, figure{Metric: x.metric, Value: value})
	}
	return nil
}

// counter returns a value of the text that a server of metrics answers. One that is not there has counted nothing.
func counter(text, name string) (float64, error) {
	for l := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(l, name+" "); ok {
			f, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				return 0, fmt.Errorf("metric %s: %w", name, err)
			}
			return f, nil
		}
	}
	return 0, nil
}
