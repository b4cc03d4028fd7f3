package local

import (
	"encoding/json"
	"errors"
	"os"
	"testing"

	"diapause.dev/agent/restore"
	localv1 "diapause.dev/api/local/v1"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/sleep"
)

// reminder returns that of pod n/p, which slept in another boot of the node.
func reminder() sleep.Reminder {
	return sleep.Reminder{
		Format: 1, Pod: snapshot.PodRef{Namespace: "n", Name: "p", UID: "pod-uid"}, Sandbox: "before", Snapshot: saved,
		UID: "u", Boot: "another",
	}
}

// TestAskRestoreAfterReboot: a pod that slept when the node went down is restored from its own snapshot, whatever the
// cluster would choose. If that cannot be, it starts anew, or is refused if it is strict. A pod that starts anew is no
// longer remembered.
func TestAskRestoreAfterReboot(t *testing.T) {
	strict := annotated(podsnapshotv1.AnnotationOnRestoreFailure, podsnapshotv1.OnRestoreFailureFail)
	for name, c := range map[string]struct {
		change      func(*sleep.Reminder)
		annotations map[string]string
		err         error // the cluster's
		want        localv1.AskRestoreResponse_Decision
		kept        bool
	}{
		"restored":                    {func(*sleep.Reminder) {}, annotated(), nil, resumes, true},
		"replaced":                    {func(m *sleep.Reminder) { m.UID = "v" }, annotated(), nil, start, false},
		"replaced, strict":            {func(m *sleep.Reminder) { m.UID = "v" }, strict, nil, fails, true},
		"has run since":               {func(m *sleep.Reminder) { m.Sandbox = "long ago" }, annotated(), nil, start, false},
		"the cluster does not answer": {func(*sleep.Reminder) {}, annotated(), errAway, fails, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, &fakeCluster{choice: restore.Choice{Init: []string{"init"}}, err: c.err})
			r.save(t, snapshot.Meta{})
			m := reminder()
			c.change(&m)
			path := sleep.ReminderPath(r.Reminders.Dir, m.Pod.UID)
			b, err := json.Marshal(m)
			err = errors.Join(err, os.MkdirAll(r.Reminders.Dir, 0o700), os.WriteFile(path, b, 0o600))
			if err != nil {
				t.Fatal(err)
			}
			resp := r.ask(t, &localv1.AskRestoreRequest{Annotations: c.annotations})
			if resp.Decision != c.want {
				t.Errorf("decided %v: %q, want %v", resp.Decision, resp.Reason, c.want)
			}
			if resp.Decision == resumes && (len(resp.EndedContainers) != 1 || resp.Snapshot != "n/s") {
				t.Errorf("answer %v", resp)
			}
			if _, err := os.Stat(path); (err == nil) != c.kept {
				t.Errorf("reminder: %v, want it kept: %v", err, c.kept)
			}
		})
	}
}
