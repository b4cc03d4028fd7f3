package restore

import (
	"math"
	"testing"

	"diapause.dev/agent/loading"
	"diapause.dev/agent/recorded"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/sidecar"
	"diapause.dev/runsc/sleep"
)

// TestUnloaded: from when a pod may wake until its restore has ended, what it has not loaded counts.
func TestUnloaded(t *testing.T) {
	a := newRig(t)
	a.make(t, "one", "page", snapshot.WholePod)
	request, _ := a.prepareWake(t)
	pod, need, err := a.Sleeper(t.Context(), request)
	if err != nil || pod.Name != "pod" || need != recorded.SandboxOverhead+4 {
		t.Errorf("pod %v takes %d bytes, %v", pod, need, err)
	}
	if n := a.Unloaded(); n != 0 || a.Admitted(request) {
		t.Errorf("%d bytes of a pod that sleeps, admitted: %v", n, a.Admitted(request))
	}
	a.Admit(request)
	if n := a.Unloaded(); n != need || !a.Admitted(request) {
		t.Errorf("%d bytes, admitted: %v", n, a.Admitted(request))
	}
	r := a.registry.all[request]
	r.image.Add(4)
	if n := a.Unloaded(); n != need-4 {
		t.Errorf("%d bytes", n)
	}
	r.image.Add(need)
	if n := a.Unloaded(); n != 0 {
		t.Errorf("%d bytes", n)
	}
	a.finish(r, nil)
	if a.Admitted(request) || a.Unloaded() != 0 {
		t.Error("it counts after its end")
	}
	if _, _, err := a.Sleeper(t.Context(), request); err == nil {
		t.Error("it wakes a pod after its end")
	}
	a.Admit(request) // of which nothing is known
}

// TestUnloadedUnasked: a pod whose shim does not ask counts from when it begins to load.
func TestUnloadedUnasked(t *testing.T) {
	a := newRig(t)
	a.make(t, "one", "page", snapshot.WholePod)
	request, _ := a.prepareWake(t)
	a.next(t)
	a.HoldAsleep(t.Context())
	if _, err := a.Source(sidecar.Options{Request: request, Token: a.registry.all[request].Token}); err != nil {
		t.Fatal(err)
	}
	if n := a.Unloaded(); n != recorded.SandboxOverhead+4 {
		t.Errorf("%d bytes", n)
	}
}

// TestUnloadedAwake: a pod that runs and has not loaded everything counts also for the next agent.
func TestUnloadedAwake(t *testing.T) {
	a := newRig(t)
	a.make(t, "one", "page", snapshot.WholePod)
	request, dir := a.prepareWake(t)
	a.Admit(request)
	a.Woken(request)
	if err := sleep.Unmark(dir); err != nil {
		t.Fatal(err)
	}
	for _, agent := range []string{"the one that has woken it", "the next"} {
		if n := a.Unloaded(); n != recorded.SandboxOverhead+4 {
			t.Errorf("%s: %d bytes", agent, n)
		}
		a.next(t)
		if _, err := a.registry.find(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
}

// TestHostileMemory: a snapshot says how much memory it takes. No such number makes the sum wrong.
func TestHostileMemory(t *testing.T) {
	for said, want := range map[int64]int64{
		math.MaxInt64: maxMemory + recorded.SandboxOverhead, math.MinInt64: recorded.SandboxOverhead,
		0: recorded.SandboxOverhead, 5: recorded.SandboxOverhead + 5,
	} {
		r := &restore{meta: &snapshot.Meta{Memory: said}, image: new(loading.Image)}
		if got := r.memory(); got != want {
			t.Errorf("%d: %d bytes, want %d", said, got, want)
		}
	}
}
