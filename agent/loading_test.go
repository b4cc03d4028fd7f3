package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"diapause.dev/agent/errkind"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/gofer"
	"diapause.dev/runsc/sidecar"
)

// hold does what a sidecar does as long as it runs.
func hold(t *testing.T, a *Agent, r *restore) (exit func()) {
	t.Helper()
	f, err := os.Open(filepath.Join(a.cfg.RequestDir, r.Request, sidecar.OptionsFile))
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_SH)
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() { f.Close() }
}

// TestLoadingWithoutAgent: a sandbox whose sidecar has not come back to the next agent is loading until
// that sidecar ends, or comes back and says that all is loaded.
func TestLoadingWithoutAgent(t *testing.T) {
	for name, end := range map[string]func(rs *restores, r *restore, exit func()){
		"ended unheard": func(_ *restores, _ *restore, exit func()) { exit() },
		"came back": func(rs *restores, r *restore, exit func()) {
			src, err := rs.source(sidecar.Options{Request: r.Request, Token: r.Token})
			if err != nil {
				t.Error(err)
				return
			}
			exit()
			src.Ended(gofer.Loaded, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newRestoring(t)
			a.make(t, "one", "text", snapshot.WholePod)
			r := a.mustPrepare(t, "sandbox")
			exit := hold(t, a, r)
			defer exit()
			a.restores = newRestores(a)
			if got := a.restores.unloaded("another"); got != "" {
				t.Errorf("another sandbox is loaded by %s", got)
			}
			ctx, cancel := context.WithCancel(t.Context())
			waited, err := a.restores.await(ctx, "sandbox", func(_, total int64) {
				if total > 0 {
					cancel()
				}
			})
			if !waited || !errors.Is(err, context.Canceled) {
				t.Errorf("waited %v, %v", waited, err)
			}
			ending := func(_, total int64) {
				if total > 0 {
					end(a.restores, r, exit)
				}
			}
			if waited, err := a.restores.await(t.Context(), "sandbox", ending); !waited || err != nil {
				t.Errorf("waited %v, %v", waited, err)
			}
			if a.restores.using(saved) {
				t.Error("its snapshot is still in use")
			}
			if left, err := os.ReadDir(a.cfg.RequestDir); err != nil || len(left) > 0 {
				t.Errorf("left: %v, %v", left, err)
			}
			if waited, err := a.restores.await(t.Context(), "sandbox", ending); waited || err != nil {
				t.Errorf("waited again: %v, %v", waited, err)
			}
		})
	}
}

// TestLoadingFailed: who waits for a load hears that it failed.
func TestLoadingFailed(t *testing.T) {
	a := newRestoring(t)
	a.make(t, "one", "text", snapshot.WholePod)
	r := a.mustPrepare(t, "sandbox")
	waited, err := a.restores.await(t.Context(), "sandbox", func(_, total int64) {
		if total > 0 {
			a.restores.reported(r.Request, errkind.ErrSandboxExited)
		}
	})
	if !waited || !errors.Is(err, errkind.ErrSandboxExited) {
		t.Errorf("waited %v, %v", waited, err)
	}
}
