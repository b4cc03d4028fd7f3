package checkpoint

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"diapause.dev/agent/errkind"
	"diapause.dev/agent/requests"
	"diapause.dev/api/snapshot"
	"diapause.dev/cri"
	"diapause.dev/runsc/durable"
	"diapause.dev/runsc/sidecar"
)

// Sidecar serves a checkpoint's sidecar, whose sentry is saving its sandbox. If Sidecar returns no error, it owns conn.
func (cs *Checkpoints) Sidecar(o sidecar.Options, conn *sidecar.Conn) error {
	if o.Direction.OfWorkload() {
		return cs.saved(o, conn)
	}
	return cs.captures.take(o, conn)
}

// Wanted reports whether the directory of a request must stay: its sidecar is expected, or its sandbox may still save
// itself.
func (cs *Checkpoints) Wanted(ctx context.Context, request string) bool {
	return cs.captures.isExpected(request) || cs.waiting(ctx, request)
}

// workloadFile, in the request's directory, holds what this agent or a later one must know when a workload saves its
// own sandbox.
const workloadFile = "workload.json"

// workload is a sandbox whose processes may save it, by writing to /proc/gvisor/checkpoint or, for files alone, to
// /proc/gvisor/fscheckpoint. gVisor allows each once in the life of a sandbox.
type workload struct {
	Token     string         `json:"token"`
	SandboxID string         `json:"sandboxID"`
	Scope     snapshot.Scope `json:"scope,omitempty"`
}

// PrepareWorkload allows the processes of a sandbox to save it. It returns the image path that runsc must get for that.
func (cs *Checkpoints) PrepareWorkload(sandbox string, scope snapshot.Scope) (dir string, err error) {
	request := requests.NewID(8)
	dir = cs.Requests.Path(request)
	w := workload{Token: requests.NewID(16), SandboxID: sandbox, Scope: scope}
	o := sidecar.Options{Socket: cs.SidecarSocket, Request: request, Token: w.Token, Direction: sidecar.Workload}
	if scope == snapshot.RootfsOnly {
		o.Direction = sidecar.RootfsWorkload
	}
	if err := w.write(dir, o); err != nil {
		return "", errors.Join(fmt.Errorf("request directory: %w", err), os.RemoveAll(dir))
	}
	return dir, nil
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

// readWorkload reads what PrepareWorkload has written.
func (cs *Checkpoints) readWorkload(request string) (w workload, err error) {
	path, err := cs.Requests.File(request, workloadFile)
	if err != nil {
		return w, err
	}
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &w)
	}
	return w, err
}

// saved starts a checkpoint that a workload has asked for. Its sentry waits, and pauses the sandbox once its files are
// open at conn. If saved returns no error, it owns conn.
func (cs *Checkpoints) saved(o sidecar.Options, conn *sidecar.Conn) error {
	w, err := cs.readWorkload(o.Request)
	if err != nil || subtle.ConstantTimeCompare([]byte(w.Token), []byte(o.Token)) != 1 {
		return fmt.Errorf("request %s: %w", o.Request, requests.ErrUnknown)
	}
	if cs.Life.Err() != nil {
		return errkind.ErrStopping
	}
	if err := conn.Welcome(nil); err != nil { // now, for the checkpoint may have to wait
		return err
	}
	cs.Life.Go(func() {
		s := &sentry{conn: conn}
		_, err := cs.Checkpoint(cs.Life.Context(), cs.Life.Context(), Options{Target: w.SandboxID, Scope: w.Scope, sentry: s})
		s.refuse(w.Scope, err, cs.CaptureTime)
		if err != nil {
			cs.unsaved(w.SandboxID, err)
		}
	})
	return nil
}

// unsaved reports why a save that the workload started has failed.
func (cs *Checkpoints) unsaved(sandbox string, cause error) {
	cs.log.Error("a workload's own checkpoint", "sandbox", sandbox, "error", cause)
	if cs.Cluster == nil || cs.Life.Err() != nil || errors.Is(cause, errkind.ErrNotReplicated) {
		return
	}
	pod, err := cs.Runtime.Get(cs.Life.Context(), sandbox)
	if err != nil {
		cs.log.Warn("the failed save is not reported for the pod", "sandbox", sandbox, "error", err)
		return
	}
	cs.Cluster.Unsaved(snapshot.PodRef{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}, cause)
}

// waiting reports whether a request's directory belongs to a sandbox that may still save itself.
func (cs *Checkpoints) waiting(ctx context.Context, request string) bool {
	w, err := cs.readWorkload(request)
	if err != nil {
		return false
	}
	_, err = cs.Runtime.Get(ctx, w.SandboxID)
	return !errors.Is(err, cri.ErrNotFound)
}
