package main

import (
	"context"
	"fmt"
	"time"

	"diapause.dev/cri"
	"diapause.dev/runsc/sleep"
)

// readiness is how pods are ready whose wakes are measured: with their kernel loaded, with their sandbox created, and not
// at all. Only the repaired build of runsc loads a kernel.
var readiness = []struct {
	kind        string
	ready, load bool
}{{"loaded", true, true}, {"ready", true, false}, {"unready", false, false}}

// ready measures the wakes of pods that are ready in either way and of pods that are not, in turns. They are of each
// size, on new connections and on one that stays open.
func (m *meter) ready(ctx context.Context) error {
	runtime, err := cri.Dial(ctx, cri.Options{})
	if err != nil {
		return err
	}
	defer runtime.Close()
	for _, mib := range sizes {
		if err := m.readySize(ctx, runtime, mib); err != nil {
			return fmt.Errorf("%d MiB: %w", mib, err)
		}
	}
	return nil
}

func (m *meter) readySize(ctx context.Context, runtime *cri.Client, mib int) error {
	s, err := m.serve(ctx, mib)
	if err != nil {
		return err
	}
	defer m.bed.RemovePod(context.WithoutCancel(ctx), s.ID)
	var f falls
	took := make(map[string]times)
	for range m.trials {
		for _, r := range readiness {
			if r.load && m.runsc != "runsc-fast" {
				continue
			}
			for on, ask := range map[string]func(context.Context) (time.Duration, error){
				"http": s.askFresh, "keepalive": s.askKept,
			} {
				if err := m.fall(ctx, s, &f); err != nil {
					return err
				}
				if r.ready {
					o := sleep.Order{Verb: sleep.MakeReady, Load: r.load}
					if err := runtime.OrderSleep(ctx, s.ID, o); err != nil {
						return err
					}
				}
				time.Sleep(settleTime)
				answered, err := ask(ctx)
				if err != nil {
					return err
				}
				took[r.kind+"/"+on] = append(took[r.kind+"/"+on], answered)
				if _, err := s.askKept(ctx); err != nil { // the kept connection is there for the next sleep
					return err
				}
			}
		}
	}
	for _, r := range readiness {
		for _, on := range []string{"http", "keepalive"} {
			if t := took[r.kind+"/"+on]; len(t) > 0 {
				m.add(fmt.Sprintf("%s/%s/%dMiB", r.kind, on, mib), t)
			}
		}
	}
	return verify(ctx, s.address)
}
