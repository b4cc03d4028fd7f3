package start

import (
	"sync"

	"diapause.dev/agent/kube/rules"
	"diapause.dev/api/snapshot"
)

const (
	// maxAttempts is how often the restore of a pod may fail before the pod starts cold. The first failure may be
	// transient: containerd may have been restarted halfway.
	maxAttempts = 2
	// maxFailures bounds how many pods are remembered.
	maxFailures = 4096
)

// attempts remembers which pods could not be restored, because the kubelet retries the start of a pod for ever.
type attempts struct {
	mu     sync.Mutex
	failed map[string]failure // by pod UID
}

type failure struct {
	times int
	last  error
}

func newAttempts() *attempts { return &attempts{failed: make(map[string]failure)} }

// note records how a restore ended.
func (a *attempts) note(pod snapshot.PodRef, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil || pod.UID == "" {
		delete(a.failed, pod.UID)
		return
	}
	if len(a.failed) >= maxFailures {
		clear(a.failed) // each of them may then fail a few more times
	}
	a.failed[pod.UID] = failure{a.failed[pod.UID].times + 1, err}
}

// spent returns a refusal if the restore of a pod has failed too often.
func (a *attempts) spent(pod snapshot.PodRef) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := a.failed[pod.UID]
	if f.times < maxAttempts {
		return nil
	}
	return rules.Refuse("it failed %d times; the last error was: %v", f.times, f.last)
}
