package start

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"diapause.dev/agent/kube/rules"
	"diapause.dev/api/snapshot"
)

func TestAttempts(t *testing.T) {
	a, pod := newAttempts(), snapshot.PodRef{Namespace: "n", Name: "p", UID: "u"}
	for i := range maxAttempts {
		if err := a.spent(pod); err != nil {
			t.Fatalf("after %d failures: %v", i, err)
		}
		a.note(pod, errors.New("no luck"))
	}
	if err := a.spent(pod); !rules.Refused(err) || !strings.Contains(err.Error(), "no luck") {
		t.Errorf("after the last one: %v", err)
	}
	a.note(pod, nil)
	if err := a.spent(pod); err != nil {
		t.Errorf("after a restore: %v", err)
	}
	for i := range maxFailures + 1 {
		a.note(snapshot.PodRef{UID: fmt.Sprint(i)}, errors.New("no luck"))
	}
	if len(a.failed) > maxFailures {
		t.Errorf("%d pods are remembered", len(a.failed))
	}
}
