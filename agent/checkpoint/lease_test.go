package checkpoint

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"diapause.dev/agent/journal"
	"diapause.dev/agent/journal/journaltest"
	"diapause.dev/cri"
	"diapause.dev/runsc/lease"
)

// renewing is a Runtime that counts renewals of a lease. They can fail or hang.
type renewing struct {
	Runtime
	renewed int
	err     error
	hangs   bool
}

func (r *renewing) RenewPause(ctx context.Context, _, _ string, _ time.Duration) error {
	r.renewed++
	if r.hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	return r.err
}

// keptPaused pauses a sandbox for some time. It checks that the lease is not renewed after its release.
func keptPaused(t *testing.T, r *renewing, d time.Duration) {
	t.Helper()
	rig := newRig(t)
	r.Runtime = rig.runtime
	rig.with(func(c *Config) { c.Runtime = r })
	c := rig.underWay(journaltest.Record(1, journal.StagePaused), Options{})
	release, err := c.pauser().pause(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(d)
	release()
	release() // a stop calls it more than once, too
	before := r.renewed
	time.Sleep(pauseLease)
	if r.renewed != before {
		t.Error("the lease is renewed after its release")
	}
}

// TestPauseIsKept: the lease of a pause is renewed again and again in time, even if renewals fail. That ends only when
// the lease has run out.
func TestPauseIsKept(t *testing.T) {
	for name, c := range map[string]struct {
		r    renewing
		want int // renewals in ten times their interval
	}{
		"renewed":               {renewing{}, 9},
		"containerd fails":      {renewing{err: errFault}, 9},
		"containerd hangs":      {renewing{hangs: true}, 5}, // a renewal may take until the next one is due
		"the lease has run out": {renewing{err: lease.ErrRanOut}, 1},
		"a kind of running out": {renewing{err: errors.Join(errFault, lease.ErrRanOut)}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				keptPaused(t, &c.r, 10*renewPause-time.Millisecond)
				if c.r.renewed < c.want {
					t.Errorf("renewed %d times, want at least %d", c.r.renewed, c.want)
				}
				if errors.Is(c.r.err, lease.ErrRanOut) && c.r.renewed > 1 {
					t.Errorf("renewed %d times after it has run out", c.r.renewed)
				}
			})
		})
	}
}

// silent is a Runtime, and a Handover, whose shim does not answer what is asked first.
type silent struct {
	Runtime
	Handover
}

func (silent) PauseFor(ctx context.Context, _, _ string, _ time.Duration) (leased bool, err error) {
	<-ctx.Done()
	return true, ctx.Err()
}

func (silent) Watch(ctx context.Context, _ *cri.Pod, _ []string) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestSilentShim: a request whose shim answers nothing does not keep its share of the node's memory for ever. The error
// names the pod, and what its shim was to do.
func TestSilentShim(t *testing.T) {
	for what, ask := range map[string]func(*checkpoint, context.Context) error{
		"watch": (*checkpoint).saveAndHandOver,
		"pause": (*checkpoint).saveAndStop,
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				s := silent{r.runtime, handover{r.runtime}}
				r.with(func(c *Config) { c.Runtime = s })
				c := r.underWay(journaltest.Record(1, journal.StageAccepted), Options{Handover: s})
				err := ask(c, t.Context())
				if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "pod "+c.pod.String()) ||
					!strings.Contains(err.Error(), "to "+what) {
					t.Errorf("error %v", err)
				}
				if now, _ := r.sandbox.now(); now != running {
					t.Errorf("the sandbox is %s", now)
				}
			})
		})
	}
}

// TestPauseWithoutLeases: if the shim knows no leases, nothing is renewed.
func TestPauseWithoutLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.sandbox.leases = false
		counting := &renewing{Runtime: r.runtime}
		r.with(func(c *Config) { c.Runtime = counting })
		c := r.underWay(journaltest.Record(1, journal.StagePaused), Options{})
		release, err := c.pauser().pause(t.Context())
		time.Sleep(pauseLease)
		release()
		if now, _ := r.sandbox.now(); err != nil || counting.renewed > 0 || now != paused {
			t.Errorf("%v, renewed %d times, the sandbox is %s", err, counting.renewed, now)
		}
	})
}
