package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"diapause.dev/cri"
	"diapause.dev/runsc/sleep"
	"github.com/prometheus/procfs"
)

// readiness is how pods are ready whose wakes are measured: with their kernel loaded, with their sandbox created, and
// not at all. Only the repaired build of runsc loads a kernel.
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
	took, most := make(map[string]times), make(map[string]waiting)
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
				w, err := m.waiting(s)
				if err != nil {
					return err
				}
				most[r.kind] = most[r.kind].max(w)
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
		if w, ok := most[r.kind]; ok && m.wants(r.kind) {
			m.figures.add(fmt.Sprintf("%s/memory/%dMiB", r.kind, mib), inMiB("pod_at_most", w.pod),
				inMiB("runsc_at_most", w.runsc))
		}
	}
	return verify(ctx, s.address)
}

// waiting is the memory of what waits for a pod's wake, in bytes.
type waiting struct {
	pod   float64 // charged to the pod's cgroup
	runsc float64 // of the processes of runsc outside of it that wait, without what they share
}

func (w waiting) max(v waiting) waiting { return waiting{max(w.pod, v.pod), max(w.runsc, v.runsc)} }

func (m *meter) waiting(s *server) (w waiting, err error) {
	charged, err := m.charged(s.Pod)
	if err != nil {
		return w, err
	}
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return w, err
	}
	all, err := proc.AllProcs()
	if err != nil {
		return w, err
	}
	var runsc process
	for _, p := range all {
		args, _ := p.CmdLine() // it may have ended
		if slices.Contains(args, "restore") && slices.Contains(args, "--set-network") {
			if err := runsc.add(p); err != nil {
				return w, err
			}
		}
	}
	return waiting{float64(charged), runsc.unique}, nil
}
