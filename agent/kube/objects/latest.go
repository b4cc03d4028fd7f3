package objects

import (
	"sync"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// latest are the PodSnapshots that this agent has written, in their last version, until the cache has them too. Its
// methods may be called concurrently.
type latest struct {
	mu  sync.Mutex
	all map[snapshot.Key]*podsnapshotv1.PodSnapshot
}

func newLatest() *latest { return &latest{all: make(map[snapshot.Key]*podsnapshotv1.PodSnapshot)} }

// put keeps a copy of the PodSnapshot with which the API server has answered a write.
func (l *latest) put(s *podsnapshotv1.PodSnapshot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all[KeyOf(s)] = s.DeepCopy()
}

// newer returns what was written after cached, or else cached. Cached may be nil.
func (l *latest) newer(k snapshot.Key, cached *podsnapshotv1.PodSnapshot) *podsnapshotv1.PodSnapshot {
	l.mu.Lock()
	defer l.mu.Unlock()
	written := l.all[k]
	if written == nil {
		return cached
	}
	if cached == nil {
		return written.DeepCopy()
	}
	if c, err := resourceversion.CompareResourceVersion(cached.ResourceVersion, written.ResourceVersion); err != nil ||
		c >= 0 {
		delete(l.all, k)
		return cached
	}
	return written.DeepCopy()
}

func (l *latest) drop(k snapshot.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, k)
}
