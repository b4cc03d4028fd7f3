package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"diapause.dev/cri"
	"diapause.dev/runsc/sleep"
	"diapause.dev/test/bed"
	"github.com/prometheus/procfs"
)

// readiness are the kinds of wakes that are measured, by how pods are ready: with their kernel loaded, with their
// sandbox created, and not at all. Only the repaired build of runsc loads a kernel.
var readiness = []kindOfWake{{"loaded", true, true}, {"ready", true, false}, {"unready", false, false}}

type kindOfWake struct {
	kind        string
	ready, load bool
}

// kinds returns what of readiness is wanted, and there is with the build of runsc.
func (m *meter) kinds() []kindOfWake {
	return slices.DeleteFunc(slices.Clone(readiness), func(r kindOfWake) bool {
		return !m.wants(r.kind) || r.load && m.runsc != "runsc-fast"
	})
}

// best returns the kinds of the most that there is with the build of runsc, and of nothing.
func (m *meter) best() []kindOfWake {
	if m.runsc == "runsc-fast" {
		return []kindOfWake{readiness[0], readiness[2]}
	}
	return readiness[1:]
}

// makeReady has a pod that sleeps made ready, in a way.
func (m *meter) makeReady(ctx context.Context, runtime *cri.Client, pod *bed.Pod, r kindOfWake) error {
	if !r.ready {
		return nil
	}
	return runtime.OrderSleep(ctx, pod.ID, sleep.Order{Verb: sleep.MakeReady, Load: r.load})
}

// longMemory is how much memory the pods of a size fill together which sleep for long, in MiB, at most: their snapshots
// are on the disk.
const longMemory = 4 << 10

// long measures the wakes, on new connections, of pods that have slept for a while: many of each kind fall asleep, and
// are woken one after another.
func (m *meter) long(ctx context.Context) error {
	runtime, err := cri.Dial(ctx, cri.Options{})
	if err != nil {
		return err
	}
	defer runtime.Close()
	for _, slept := range m.slept {
		if err := m.longAsleep(ctx, runtime, slept); err != nil {
			return fmt.Errorf("asleep for %v: %w", slept, err)
		}
	}
	return nil
}

// sleeper is a pod that sleeps for long.
type sleeper struct {
	*server
	row string    // of its wake
	at  time.Time // when it is woken
}

// longAsleep has the pods of all sizes sleep at the same time.
func (m *meter) longAsleep(ctx context.Context, runtime *cri.Client, slept time.Duration) error {
	var all []sleeper
	defer func() {
		for _, s := range all {
			_ = m.bed.RemovePod(context.WithoutCancel(ctx), s.ID)
		}
	}()
	for _, mib := range sizes {
		for range min(m.trials, longMemory/mib) {
			for _, r := range m.best() {
				s, err := m.longSleeper(ctx, runtime, mib, r)
				if err != nil {
					return err
				}
				all = append(all, sleeper{s, fmt.Sprintf("long/%s/%v/%dMiB", r.kind, slept, mib), time.Now().Add(slept)})
			}
		}
	}
	took := make(map[string]times)
	for len(all) > 0 {
		s := all[0]
		time.Sleep(time.Until(s.at))
		answered, err := s.askFresh(ctx)
		if err != nil {
			return err
		}
		took[s.row] = append(took[s.row], answered)
		if err := errors.Join(verify(ctx, s.address), m.bed.RemovePod(ctx, s.ID)); err != nil {
			return err
		}
		all = all[1:]
		time.Sleep(settleTime)
	}
	for _, row := range slices.Sorted(maps.Keys(took)) {
		m.add(row, took[row])
	}
	return nil
}

// longSleeper returns a pod that sleeps, and is ready in a way.
func (m *meter) longSleeper(ctx context.Context, runtime *cri.Client, mib int, r kindOfWake) (*server, error) {
	s, err := m.serve(ctx, mib)
	if err != nil {
		return nil, err
	}
	var f falls
	if err = m.fall(ctx, s, &f); err == nil {
		err = m.makeReady(ctx, runtime, s.Pod, r)
	}
	if err != nil {
		return nil, errors.Join(err, m.bed.RemovePod(context.WithoutCancel(ctx), s.ID))
	}
	return s, nil
}

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
	exec := func(ctx context.Context) (time.Duration, error) { return m.command(ctx, s.Pod, usage) }
	for range m.trials {
		for _, r := range m.kinds() {
			for on, ask := range map[string]func(context.Context) (time.Duration, error){
				"http": s.askFresh, "keepalive": s.askKept, "exec": exec,
			} {
				if err := m.fall(ctx, s, &f); err != nil {
					return err
				}
				if err := m.makeReady(ctx, runtime, s.Pod, r); err != nil {
					return err
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
		awake, err := exec(ctx)
		if err != nil {
			return err
		}
		took["awake/exec"] = append(took["awake/exec"], awake)
	}
	m.add(fmt.Sprintf("awake/exec/%dMiB", mib), took["awake/exec"])
	for _, r := range readiness {
		for _, on := range []string{"http", "keepalive", "exec"} {
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
