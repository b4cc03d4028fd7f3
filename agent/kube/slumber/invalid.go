package slumber

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// fault says which annotations of a pod have no effect, and why.
type fault struct {
	uid  types.UID
	text string
}

// maxTold bounds for how many pods their faults are remembered. Beyond it nobody is told.
const maxTold = 10000

// tellFaults makes an event on a pod whose annotations have no effect, once for each of their values.
func (s *Slumbers) tellFaults(name types.NamespacedName, pod *corev1.Pod) {
	now := fault{pod.UID, faultsOf(pod.Annotations)}
	s.mu.Lock()
	_, known := s.told[name]
	news := now.text != "" && s.told[name] != now && (known || len(s.told) < maxTold)
	switch {
	case now.text == "":
		delete(s.told, name)
	case news:
		s.told[name] = now
	}
	s.mu.Unlock()
	if news {
		s.Objects.AnnotationEvent(pod, now.text)
	}
}

func (s *Slumbers) forgetFaults(name types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.told, name)
}

// faultsOf returns which annotations have no effect, and why.
func faultsOf(annotations map[string]string) string {
	var faults []string
	for _, key := range []string{podsnapshotv1.AnnotationSleep, podsnapshotv1.AnnotationWake} {
		if n := len(annotations[key]); n > maxID {
			faults = append(faults, fmt.Sprintf("annotation %s has %d bytes and no effect: at most %d are allowed", key, n,
				maxID))
		}
	}
	at := annotations[podsnapshotv1.AnnotationWakeAt]
	if _, err := time.Parse(time.RFC3339, at); at != "" && err != nil {
		faults = append(faults, fmt.Sprintf("annotation %s is %.80q and has no effect: it must be a time in RFC 3339, such "+
			"as 2030-12-31T07:30:00Z", podsnapshotv1.AnnotationWakeAt, at))
	}
	return strings.Join(faults, "; ")
}
