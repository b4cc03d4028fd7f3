package restore

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"diapause.dev/agent/errkind"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc"
	"diapause.dev/runsc/gofer"
	"diapause.dev/runsc/sidecar"
)

// hold does what a running sidecar does: it locks its options file.
func hold(t *testing.T, a *rig, r *restore) (exit func()) {
	t.Helper()
	f, err := os.Open(filepath.Join(a.Requests.Path(r.Request), sidecar.OptionsFile))
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_SH)
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() { f.Close() }
}

// TestLoadingWithoutAgent: a sandbox counts as loading while its sidecar has not come back to the next agent. That ends
// when the sidecar ends, or when it comes back and says that everything is loaded.
func TestLoadingWithoutAgent(t *testing.T) {
	for name, end := range map[string]func(rs *Restores, r *restore, exit func()){
		"ended unheard": func(_ *Restores, _ *restore, exit func()) { exit() },
		"came back": func(rs *Restores, r *restore, exit func()) {
			src, err := rs.Source(sidecar.Options{Request: r.Request, Token: r.Token})
			if err != nil {
				t.Error(err)
				return
			}
			exit()
			src.Ended(gofer.Loaded, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newRig(t)
			a.make(t, "one", "text", snapshot.WholePod)
			r := a.mustPrepare(t, "sandbox")
			exit := hold(t, a, r)
			defer exit()
			a.next(t)
			if got := a.registry.loads("another"); got != "" {
				t.Errorf("another sandbox is loaded by %s", got)
			}
			ctx, cancel := context.WithCancel(t.Context())
			waited, err := a.Await(ctx, "sandbox", func(_, total int64) {
				if total > 0 {
					cancel()
				}
			})
			if !waited || !errors.Is(err, context.Canceled) {
				t.Errorf("waited %v, %v", waited, err)
			}
			loading, err := a.registry.find(t.Context(), r.Request)
			if err != nil || loading.image.Pace(runsc.PagesFile, 0, 1, false).GivesWay {
				t.Errorf("a sandbox that is waited for gives way to others: %v", err)
			}
			ending := func(_, total int64) {
				if total > 0 {
					end(a.Restores, r, exit)
				}
			}
			if waited, err := a.Await(t.Context(), "sandbox", ending); !waited || err != nil {
				t.Errorf("waited %v, %v", waited, err)
			}
			if a.Readers.Using(saved) {
				t.Error("its snapshot is still in use")
			}
			if left, err := a.Requests.All(); err != nil || len(left) > 0 {
				t.Errorf("left: %v, %v", left, err)
			}
			if waited, err := a.Await(t.Context(), "sandbox", ending); waited || err != nil {
				t.Errorf("waited again: %v, %v", waited, err)
			}
		})
	}
}

// TestLoadingFailed: if a restore fails, Await returns the failure.
func TestLoadingFailed(t *testing.T) {
	a := newRig(t)
	a.make(t, "one", "text", snapshot.WholePod)
	r := a.mustPrepare(t, "sandbox")
	waited, err := a.Await(t.Context(), "sandbox", func(_, total int64) {
		if total > 0 {
			a.Reported(r.Request, r.SandboxID, errkind.ErrSandboxExited)
		}
	})
	if !waited || !errors.Is(err, errkind.ErrSandboxExited) {
		t.Errorf("waited %v, %v", waited, err)
	}
}
