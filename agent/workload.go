package agent

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"diapause.dev/agent/durable"
	"diapause.dev/agent/errkind"
	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/api/snapshot"
	"diapause.dev/cri"
	"diapause.dev/runsc/capture"
	"diapause.dev/runsc/sidecar"
)

// workloadFile holds what the agent, this one or a later one, must know when a workload has its own
// sandbox saved, in the directory of the request.
const workloadFile = "workload.json"

// workload is a sandbox whose processes may have it saved, by writing to /proc/gvisor/checkpoint or,
// its files alone, to /proc/gvisor/fscheckpoint. GVisor lets them do each once in the life of a
// sandbox.
type workload struct {
	Token     string         `json:"token"`
	SandboxID string         `json:"sandboxID"`
	Scope     snapshot.Scope `json:"scope,omitempty"`
}

// PrepareWorkload implements localv1.ShimServer.
func (s *shimService) PrepareWorkload(_ context.Context,
	req *localv1.PrepareWorkloadRequest,
) (*localv1.PrepareWorkloadResponse, error) {
	request := newID(8)
	dir := filepath.Join(s.cfg.RequestDir, request)
	w := workload{Token: newID(16), SandboxID: req.SandboxId}
	o := sidecar.Options{Socket: s.cfg.SidecarSocket, Request: request, Token: w.Token, Direction: sidecar.Workload}
	if req.RootfsOnly {
		w.Scope, o.Direction = snapshot.RootfsOnly, sidecar.RootfsWorkload
	}
	if err := w.write(dir, o); err != nil {
		return nil, toStatus(errors.Join(fmt.Errorf("request directory: %w", err), os.RemoveAll(dir)))
	}
	return &localv1.PrepareWorkloadResponse{ImagePath: dir}, nil
}

func (w workload) write(dir string, o sidecar.Options) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	b, err := json.Marshal(w)
	if err == nil {
		err = durable.Replace(filepath.Join(dir, workloadFile), b)
	}
	if err == nil {
		err = o.Write(dir)
	}
	return err
}

// readWorkload reads what PrepareWorkload wrote down.
func (a *Agent) readWorkload(request string) (w workload, err error) {
	if !localName(request) {
		return w, fmt.Errorf("%w: request %.40q", errkind.ErrInvalid, request)
	}
	b, err := os.ReadFile(filepath.Join(a.cfg.RequestDir, request, workloadFile))
	if err == nil {
		err = json.Unmarshal(b, &w)
	}
	return w, err
}

// saved takes a checkpoint that a workload has begun: its sentry waits at sock, and pauses the sandbox
// once its files are open there. Saved takes sock over if it returns no error.
func (a *Agent) saved(o sidecar.Options, sock int) error {
	w, err := a.readWorkload(o.Request)
	if err != nil || subtle.ConstantTimeCompare([]byte(w.Token), []byte(o.Token)) != 1 {
		return fmt.Errorf("request %s: %w", o.Request, errUnknownRequest)
	}
	if a.life.Err() != nil {
		return errkind.ErrStopping
	}
	a.life.Go(func() {
		s := &sentry{sock: sock}
		_, err := a.Checkpoint(a.life.Context(), a.life.Context(), CheckpointOptions{Target: w.SandboxID, Scope: w.Scope, sentry: s})
		s.refuse(w.Scope, err)
		if err != nil {
			a.unsaved(w.SandboxID, err)
		}
	})
	return nil
}

// unsaved tells why a sandbox was not saved whose workload had begun that.
func (a *Agent) unsaved(sandbox string, cause error) {
	a.log.Error("a workload's own checkpoint", "sandbox", sandbox, "error", cause)
	if a.cluster == nil || a.life.Err() != nil || errors.Is(cause, errkind.ErrNotReplicated) {
		return
	}
	pod, err := a.cri.Get(a.life.Context(), sandbox)
	if err != nil {
		a.log.Warn("its pod is not told", "sandbox", sandbox, "error", err)
		return
	}
	a.cluster.Unsaved(snapshot.PodRef{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}, cause)
}

// sentry is the socket of a sentry that has begun a save and waits for its gofer.
type sentry struct{ sock int }

// take hands the socket over.
func (s *sentry) take() int {
	sock := s.sock
	s.sock = -1
	return sock
}

// refuse has the save fail if nobody has taken the socket. The sandbox runs on, and the workload is
// told. To one that saves files it is enough to hang up.
func (s *sentry) refuse(scope snapshot.Scope, err error) {
	if s.sock < 0 {
		return
	}
	if scope == snapshot.RootfsOnly {
		unix.Close(s.take())
		return
	}
	refusal := capture.New(scope, capture.Refuse{Err: err})
	_ = refusal.Serve(s.take()) // one that cannot be served fails all the same
}

// waiting reports whether a request's directory is that of a sandbox that may still save itself.
func (a *Agent) waiting(ctx context.Context, request string) bool {
	w, err := a.readWorkload(request)
	if err != nil {
		return false
	}
	_, err = a.cri.Get(ctx, w.SandboxID)
	return !errors.Is(err, cri.ErrNotFound)
}
