package restore

import (
	"context"
	"errors"
	"testing"
	"time"

	"diapause.dev/agent/errkind"
	"diapause.dev/api/snapshot"
	"diapause.dev/cri"
	"diapause.dev/runsc"
	"diapause.dev/runsc/gofer"
	"diapause.dev/runsc/sidecar"
	"diapause.dev/runsc/sleep"
)

// sidecar returns what a sidecar of a request reads from.
func (a *rig) sidecar(t *testing.T, request string) gofer.Source {
	t.Helper()
	r, err := a.registry.find(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	s, err := a.Source(sidecar.Options{Request: request, Token: r.Token})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// mustRead reads the beginning of the kernel's state.
func mustRead(t *testing.T, s gofer.Source) {
	t.Helper()
	if err := s.ReadAt(t.Context(), runsc.StateFile, 0, make([]byte, 4)); err != nil {
		t.Error(err)
	}
}

// TestKernelBeforehand: the sandbox of a pod that sleeps gets the kernel's state, and the pod still sleeps: its
// reminder stays, and if the sandbox goes, another one gets the same. Nothing of the memory is had before the pod
// wakes, also from the next agent, which may not know that it has let it wake.
func TestKernelBeforehand(t *testing.T) {
	for name, next := range map[string]bool{"same agent": false, "next agent": true} {
		t.Run(name, func(t *testing.T) {
			a, _, request, dir := newSleepyRig(t)
			if err := errors.Join(a.Remember(request), sleep.HoldMemory(dir)); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				s := a.sidecar(t, request)
				mustRead(t, s)
				if _, ok := a.SleepsOn("sandbox"); !ok || !a.remembered(t) {
					t.Errorf("it sleeps on: %v, and is remembered: %v", ok, a.remembered(t))
				}
				s.Failed(runsc.StateFile, errkind.ErrSandboxExited)
				s.Ended(gofer.Gone, nil)
			}
			if next {
				a.next(t)
				a.HoldAsleep(t.Context())
			}
			s := a.sidecar(t, request)
			if held := s.Pace(runsc.PagesFile, 0, 1, true).Held; held == nil {
				t.Fatal("reads ahead of need do not wait")
			}
			read := make(chan error, 1)
			go func() { read <- s.ReadAt(t.Context(), runsc.PagesFile, 0, make([]byte, 4)) }()
			if !next {
				a.Admit(request)
			}
			mustRead(t, s)
			if len(read) > 0 || !a.remembered(t) {
				t.Fatal("it may have memory before it wakes")
			}
			if err := sleep.ReleaseMemory(dir); err != nil {
				t.Fatal(err)
			}
			<-read // the snapshot has none, so that is an error
			if _, ok := a.SleepsOn("sandbox"); ok || a.remembered(t) {
				t.Errorf("it sleeps on: %v, and is remembered: %v", ok, a.remembered(t))
			}
			if held := s.Pace(runsc.PagesFile, 0, 1, true).Held; held != nil {
				t.Error("reads are still held")
			}
			if a.Unloaded() == 0 {
				t.Error("its memory is not counted")
			}
		})
	}
}

// TestEndsAtWake: a sandbox that was made beforehand ends when its pod wakes, and has had nothing of the memory.
// Another one gets all. If the pod was woken by it, the restore is over.
func TestEndsAtWake(t *testing.T) {
	for name, woken := range map[string]bool{"before it has asked for memory": false, "after it has run": true} {
		t.Run(name, func(t *testing.T) {
			a, _, request, dir := newSleepyRig(t)
			if err := errors.Join(a.Remember(request), sleep.HoldMemory(dir)); err != nil {
				t.Fatal(err)
			}
			s := a.sidecar(t, request)
			mustRead(t, s)
			a.Admit(request)
			if err := sleep.ReleaseMemory(dir); err != nil {
				t.Fatal(err)
			}
			if held := s.Pace(runsc.PagesFile, 0, 1, true).Held; held != nil {
				<-held
			}
			s.Ended(gofer.Gone, nil)
			if !woken {
				mustRead(t, a.sidecar(t, request))
				a.Woken(request)
				if a.registry.ofRequest(request) == nil {
					t.Error("the restore is over, and a sandbox reads from it")
				}
				return
			}
			a.Woken(request)
			if r := a.registry.ofRequest(request); r != nil {
				t.Errorf("the restore goes on without a sandbox: %+v", r.record)
			}
		})
	}
}

// TestHostileBeforehand: a sidecar that breaks the protocol while the pod sleeps ends the restore, as one that breaks
// it later does.
func TestHostileBeforehand(t *testing.T) {
	a := newRig(t)
	a.config.Runtime = empty{}
	a.next(t)
	a.make(t, "one", "page", snapshot.WholePod)
	request, dir := a.prepareWake(t)
	if err := sleep.HoldMemory(dir); err != nil {
		t.Fatal(err)
	}
	s := a.sidecar(t, request)
	r := a.registry.ofRequest(request)
	s.Breach(gofer.ErrBreach)
	s.Ended(gofer.Gone, gofer.ErrBreach)
	select {
	case <-r.ended:
	case <-time.After(time.Minute):
		t.Error("it goes on")
	}
}

// empty is a containerd without pods.
type empty struct{ Runtime }

func (empty) Get(context.Context, string) (*cri.Pod, error) { return nil, cri.ErrNotFound }
