package restore

import (
	"context"

	"diapause.dev/api/snapshot"
)

// Remember writes the reminder of a pod that has fallen asleep, which the request wakes. If the pod is not asleep any
// more, it writes none.
func (ws *Wakes) Remember(request string) error {
	r := ws.registry.ofRequest(request)
	if r == nil || r.Pod.UID == "" {
		return nil
	}
	r.waking.Lock()
	defer r.waking.Unlock()
	if r.fed.Load() || !ws.marks.Asleep(request) || ws.reminders.Failed(r.Pod.UID, r.SandboxID) {
		return nil
	}
	return ws.reminders.Write(r.sleeper(), false)
}

// Remembered returns what a pod is restored from whose sandbox is being made, if it slept when the node went down.
// After an error it is not known whether it did.
func (ws *Wakes) Remembered(ctx context.Context, pod snapshot.PodRef, sandbox string,
) (c Choice, ok bool, err error) {
	id, ok, err := ws.reminders.Remembered(ctx, pod, sandbox)
	if err != nil || !ok {
		return c, false, err
	}
	return Choice{Snapshot: id.Key, UID: id.UID, own: true}, true, nil
}
