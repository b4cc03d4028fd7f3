package checkpoint

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"diapause.dev/agent/journal"
	"diapause.dev/agent/snapshots"
	"diapause.dev/cri"
)

// handover is a Handover whose calls are calls of the rig's containerd, so that faults hit them, too. A sandbox that is
// taken over runs on for containerd, as a pod does that sleeps.
type handover struct{ *runtime }

// Watch implements Handover.
func (h handover) Watch(_ context.Context, _ *cri.Pod, containers []string) error {
	return h.held("watch", func() error {
		if h.stateLocked() != running || len(containers) != 1 {
			h.wrongLocked("watched for packets while it is %s, with containers %q", h.stateLocked(), containers)
		}
		return nil
	})
}

// Take implements Handover.
func (h handover) Take(_ context.Context, _ *cri.Pod, request string, id snapshots.ID) error {
	return h.held("take", func() error {
		if err := h.holdsLocked(request); err != nil {
			return err
		}
		if !h.safe(&journal.Record{Key: id.Key, UID: id.UID}) {
			h.wrongLocked("taken over without a snapshot")
		}
		h.state, h.holder = running, "" // and nothing of it runs: whoever wants it, wakes it
		return nil
	})
}

// Leave implements Handover.
func (h handover) Leave(context.Context, *cri.Pod) { _ = h.held("leave", func() error { return nil }) }

// TestHandover hands a sandbox over: it is neither killed nor resumed.
func TestHandover(t *testing.T) {
	r := newRig(t)
	request, found, err := r.save(saving{}, Options{Handover: handover{r.runtime}})
	if err != nil || !found.OnNode {
		t.Fatalf("%+v, %v", found, err)
	}
	r.settled()
	r.isSound()
	if calls := strings.Join(r.runtime.made(), ", "); !strings.HasSuffix(calls, "take") ||
		!strings.Contains(calls, "watch, pause, ") {
		t.Errorf("calls: %s", calls)
	}
	if rec := r.Journal.Get(request); !rec.Sleep || rec.Stop || rec.Stopped || rec.RunsOn != "" {
		t.Errorf("the journal says %+v", rec)
	}
}

// TestHandoverFaults: whichever call fails, or is the last one of an agent that dies, the sandbox does not stay paused,
// and the request is reported as failed if its snapshot is not safe, and only then.
func TestHandoverFaults(t *testing.T) {
	for name, f := range faults {
		more := true
		for n := 1; more && n <= mostCalls; n++ {
			t.Run(fmt.Sprintf("call %d %s", n, name), func(t *testing.T) {
				r := newRig(t)
				r.runtime.set(n, f)
				survived := survive(func() { r.save(saving{}, Options{Handover: handover{r.runtime}}) })
				if more = r.runtime.hit(n); !more {
					return
				}
				r.runtime.lift()
				if !survived {
					r.next()
					r.Recover(t.Context())
				}
				r.settled()
				r.isSound()
			})
		}
	}
}

// TestHandoverTurnedDown has the one who is to take the sandbox over refuse it: it runs on, and the caller is told.
func TestHandoverTurnedDown(t *testing.T) {
	for _, call := range []string{"watch", "take"} {
		t.Run(call, func(t *testing.T) {
			r := newRig(t)
			r.runtime.failing = call
			_, _, err := r.save(saving{}, Options{Handover: handover{r.runtime}})
			if err == nil || call == "take" && !strings.Contains(err.Error(), "was made, but the pod does not sleep") {
				t.Errorf("error %v", err)
			}
			r.settled()
			r.isSound()
			if calls := r.runtime.made(); calls[len(calls)-1] != "leave" {
				t.Errorf("calls: %q", calls)
			}
		})
	}
}
