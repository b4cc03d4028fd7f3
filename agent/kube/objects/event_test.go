package objects

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"diapause.dev/agent/kube/notice"
	"diapause.dev/api/snapshot"
)

// recorder counts events as client-go does: by all but their text. It has the first text of each.
type recorder map[string]string

func (r recorder) Eventf(about, related runtime.Object, kind, reason, action, note string, args ...any) {
	key := fmt.Sprint(*about.(*corev1.ObjectReference), related, kind, reason, action)
	if _, ok := r[key]; !ok {
		r[key] = fmt.Sprintf(note, args...)
	}
}

// TestEventsStayApart: a second reason for what happens to a pod is an event of its own. The same one is not.
func TestEventsStayApart(t *testing.T) {
	all := recorder{}
	o := &Events{recorder: all}
	pod := snapshot.PodRef{Namespace: "ns", Name: "web", UID: "uid"}
	said := []string{"no policy", "an exec", "no policy"}
	for _, text := range said {
		o.Pod(pod, snapshot.Key{}, notice.StaysAwake, text)
		o.Pod(pod, snapshot.Key{}, notice.EndsUnsaved, text)
	}
	if len(all) != 4 {
		t.Errorf("events %q, want 2 of each kind", all)
	}
	for _, text := range said[:2] {
		n := 0
		for _, got := range all {
			if strings.HasSuffix(got, ": "+text) {
				n++
			}
		}
		if n != 2 {
			t.Errorf("%q is said %d times, want 2", text, n)
		}
	}
}
