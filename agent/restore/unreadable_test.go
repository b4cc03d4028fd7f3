package restore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"diapause.dev/agent/journal/journaltest"
	"diapause.dev/agent/lifetime"
	"diapause.dev/api/snapshot"
	"diapause.dev/cri"
	"diapause.dev/runsc"
	"diapause.dev/runsc/gofer"
	"diapause.dev/runsc/sidecar"
	"diapause.dev/storage"
)

// killer is a Runtime that counts the pods that it kills, and a Cluster that counts what it is told.
type killer struct {
	Runtime
	kills int
	told  int
}

func (k *killer) Get(_ context.Context, id string) (*cri.Pod, error) { return &cri.Pod{ID: id}, nil }

func (k *killer) Kill(context.Context, *cri.Pod) error {
	k.kills++
	return nil
}

// NotRestored counts what the cluster is told.
func (k *killer) NotRestored(context.Context, snapshot.PodRef, snapshot.Key, error) { k.told++ }

// TestEndSandbox: a sandbox whose memory or files cannot be read is ended once, if it does not end by itself in time.
// The cluster is told unless the shim tells it, as it does of a sandbox that has not run.
func TestEndSandbox(t *testing.T) {
	for name, tt := range map[string]struct {
		scope snapshot.Scope
		after time.Duration // it ends by itself; 0: it does not
		woken bool
		kills int
		told  int
	}{
		"whole pod":                       {scope: snapshot.WholePod, kills: 1},
		"whole pod that ends by itself":   {scope: snapshot.WholePod, after: ownEndTime / 2},
		"whole pod that was woken":        {scope: snapshot.WholePod, woken: true, kills: 1, told: 1},
		"files":                           {scope: snapshot.RootfsOnly, kills: 1, told: 1},
		"files of one that ends just now": {scope: snapshot.RootfsOnly, after: ownEndTime / 2, kills: 1, told: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				containerd := &killer{}
				rs := New(Config{
					Life: lifetime.New(t.Context()), Runtime: containerd, Cluster: containerd, Logger: journaltest.Quiet,
				})
				r := newRestore(record{SandboxID: "sandbox", Scope: tt.scope})
				r.woken = tt.woken
				for range 3 { // reads fail one after the other
					rs.ender.endSandbox(r, errors.New("damaged"))
				}
				if tt.after > 0 {
					time.Sleep(tt.after)
					close(r.ended)
				}
				time.Sleep(2 * ownEndTime)
				rs.Life.Wait()
				if containerd.kills != tt.kills || containerd.told != tt.told {
					t.Errorf("killed %d times, told %d times", containerd.kills, containerd.told)
				}
			})
		})
	}
}

// TestHostileSidecarEnds: a sandbox whose sidecar has lied is ended at once, even if its restore has failed before. Its
// restore fails, and the error names the pod.
func TestHostileSidecarEnds(t *testing.T) {
	for name, failed := range map[string]bool{"while it loads": false, "after it has failed": true} {
		t.Run(name, func(t *testing.T) {
			a, containerd := newRig(t), &killer{}
			a.config.Runtime = containerd
			a.next(t)
			a.make(t, "one", "old!", snapshot.WholePod)
			r := a.mustPrepare(t, "sandbox")
			src, err := a.Source(sidecar.Options{Request: r.Request, Token: r.Token})
			if err != nil {
				t.Fatal(err)
			}
			if failed {
				a.ender.endSandbox(r, errors.New("damaged"))
			}
			src.Breach(fmt.Errorf("%w: too much", gofer.ErrBreach))
			src.Ended(gofer.Gone, nil)
			<-r.ended
			a.end()
			if containerd.kills != 1 {
				t.Errorf("it is killed %d times", containerd.kills)
			}
			err = r.failure()
			if !failed && (!errors.Is(err, gofer.ErrBreach) || !strings.Contains(err.Error(), r.Pod.String())) {
				t.Errorf("the restore failed with: %v", err)
			}
		})
	}
}

// TestExplain: what the shim says of a failed restore comes with what the agent knows of it, and is not repeated.
func TestExplain(t *testing.T) {
	a := newRig(t)
	a.make(t, "one", "old!", snapshot.WholePod)
	told := errors.New("runsc ended: EOF")
	for _, failed := range []bool{true, false} {
		r := a.mustPrepare(t, fmt.Sprintf("sandbox-%t", failed))
		if failed {
			(&source{rs: a.Restores, restore: r}).Failed(runsc.StateFile, storage.ErrCorrupt)
		}
		err := a.Explain(r.Request, told)
		a.Reported(r.Request, r.SandboxID, err)
		if !errors.Is(err, told) || errors.Is(err, storage.ErrCorrupt) != failed || strings.Count(err.Error(), "EOF") != 1 {
			t.Errorf("failed %t: %v", failed, err)
		}
	}
	if err := a.Explain("unknown", told); err != told {
		t.Errorf("another request: %v", err)
	}
	a.end()
}
