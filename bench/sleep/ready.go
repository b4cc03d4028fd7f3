package main

import (
	"context"
	"fmt"
	"time"

	"diapause.dev/cri"
	"diapause.dev/runsc/sleep"
)

// ready measures the wakes of pods that are ready and of pods that are not, in turns. They are of each size, on new
// connections and on one that stays open.
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
		for _, ready := range []bool{true, false} {
			for on, ask := range map[string]func(context.Context) (time.Duration, error){
				"http": s.askFresh, "keepalive": s.askKept,
			} {
				if err := m.fall(ctx, s, &f); err != nil {
					return err
				}
				kind := "unready"
				if ready {
					kind = "ready"
					if err := runtime.OrderSleep(ctx, s.ID, sleep.Order{Verb: sleep.MakeReady}); err != nil {
						return err
					}
				}
				time.Sleep(settleTime)
				answered, err := ask(ctx)
				if err != nil {
					return err
				}
				took[kind+"/"+on] = append(took[kind+"/"+on], answered)
				if _, err := s.askKept(ctx); err != nil { // the kept connection is there for the next sleep
					return err
				}
			}
		}
	}
	for _, kind := range []string{"ready/http", "unready/http", "ready/keepalive", "unready/keepalive"} {
		m.add(fmt.Sprintf("%s/%dMiB", kind, mib), took[kind])
	}
	return verify(ctx, s.address)
}
