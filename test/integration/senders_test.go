package integration

import (
	"context"
	"net/http"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"diapause.dev/runsc/sleep"
	"diapause.dev/runsc/traffic"
	"diapause.dev/runsc/use"
	"diapause.dev/test/bed"
)

// TestSenders has the shims of two pods say who sends packets to them: whoever asks their servers, unless that is to be
// ignored.
func TestSenders(t *testing.T) {
	n := start(t)
	ctx, cancel := context.WithCancel(n.ctx)
	var clients, watches errgroup.Group
	defer func() {
		cancel()
		_ = clients.Wait()
	}()
	c := n.containerd()
	ignores := map[*bed.Pod][]traffic.Ignored{
		n.workload("asked", "serve", "--mib=8"):   nil,
		n.workload("ignores", "serve", "--mib=8"): {{Port: 8080}},
	}
	for p, ignored := range ignores {
		n.serving(p)
		clients.Go(func() error { return ask(ctx, p) })
		watches.Go(func() error {
			return c.OrderSleep(n.ctx, p.ID, sleep.Order{Verb: sleep.Senders, Ignored: ignored})
		})
	}
	if err := watches.Wait(); err != nil {
		t.Fatal(err)
	}
	for p, ignored := range ignores {
		all, err := use.Senders(use.Dir(bed.AgentSocket), p.ID)
		named := len(all) > 0 && all[0].Protocol == "TCP" && all[0].Port == 8080 && all[0].From.Is4() && all[0].Packets > 10
		if err != nil || named != (ignored == nil) {
			t.Errorf("%s: senders %+v, %v", p.Name, all, err)
		}
	}
}

// ask asks a workload again and again.
func ask(ctx context.Context, p *bed.Pod) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	for ctx.Err() == nil {
		if r, err := client.Get("http://" + p.IP + ":8080/state"); err == nil {
			r.Body.Close()
		}
	}
	return nil
}
