package slumber

import (
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"diapause.dev/agent/kube/notice"
	"diapause.dev/agent/kube/objects"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// fault says which annotations of a pod have no effect, and why.
type fault struct {
	uid  types.UID
	text string
}

// maxTold bounds for how many pods their faults are remembered. Beyond it nobody is told.
const maxTold = 10000

// faults are the pods with annotations that have no effect. Its methods may be called concurrently.
type faults struct {
	objects *objects.Objects

	mu   sync.Mutex
	told map[types.NamespacedName]fault
}

func newFaults(o *objects.Objects) *faults {
	return &faults{objects: o, told: make(map[types.NamespacedName]fault)}
}

// tell makes an event on a pod whose annotations have no effect, once for each of their values.
func (f *faults) tell(name types.NamespacedName, pod *corev1.Pod) {
	now := fault{pod.UID, faultsOf(pod.Annotations)}
	f.mu.Lock()
	_, known := f.told[name]
	news := now.text != "" && f.told[name] != now && (known || len(f.told) < maxTold)
	switch {
	case now.text == "":
		delete(f.told, name)
	case news:
		f.told[name] = now
	}
	f.mu.Unlock()
	if news {
		f.objects.Events.Annotations(pod, notice.InvalidAnnotation, now.text)
	}
}

func (f *faults) forget(name types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.told, name)
}

// faultsOf returns which annotations have no effect, and why.
func faultsOf(annotations map[string]string) string {
	var faults []string
	for _, key := range []string{podsnapshotv1.AnnotationSleep, podsnapshotv1.AnnotationWake} {
		if n := len(annotations[key]); n > maxID {
			faults = append(faults, fmt.Sprintf(notice.AnnotationTooLong, key, n, maxID))
		}
	}
	at := annotations[podsnapshotv1.AnnotationWakeAt]
	if _, err := time.Parse(time.RFC3339, at); at != "" && err != nil {
		faults = append(faults, fmt.Sprintf(notice.AnnotationNoTime, podsnapshotv1.AnnotationWakeAt, at))
	}
	return strings.Join(faults, "; ")
}
