package sleeppolicy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"diapause.dev/agent/admission"
	"diapause.dev/agent/kube/notice"
	"diapause.dev/api/snapshot"
)

// Idle implements admission.Cluster. A pod may be put to sleep if exactly one policy selects it, which is not for
// dryRun, nobody has used it for a moment, and its minAwake is over.
func (p *Policies) Idle() (all []admission.Candidate) {
	for _, s := range p.watcher.Spares() {
		if p.sleeps(s.Pod.UID) {
			all = append(all, admission.Candidate{Pod: s.Pod, Memory: s.Memory})
		}
	}
	return all
}

// sleeps reports whether the policy of a pod is not for dryRun.
func (p *Policies) sleeps(uid string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.all[uid]
	return k != nil && !k.dryRun
}

// earlyTime bounds how long a pod may take to fall asleep so that another wakes.
const earlyTime = 2 * time.Minute

var errAwake = errors.New("it is used, or cannot sleep")

// PutToSleep implements admission.Cluster.
func (p *Policies) PutToSleep(ctx context.Context, pod snapshot.PodRef) error {
	ctx, cancel := context.WithTimeout(ctx, earlyTime)
	defer cancel()
	if v, ok := p.watcher.Early(ctx, pod.UID); !ok || !v.Asleep {
		return fmt.Errorf("put pod %s to sleep: %w", pod, errAwake)
	}
	p.Objects.Events.Pod(pod, snapshot.Key{}, notice.MadeRoom)
	return nil
}
