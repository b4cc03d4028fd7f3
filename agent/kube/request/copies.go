package request

import (
	"context"
	"fmt"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/snapshots"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// copies are what this node may have of other nodes' PodSnapshots that are being deleted: the snapshots' UIDs. A node
// has such a copy if it had another name when it made the snapshot, or if its cluster was another one and the present
// one has adopted the snapshot. Nothing waits for this node, so a PodSnapshot may be gone before its copy is removed.
// Its methods may be called concurrently.
type copies struct {
	node forgetter

	mu  sync.Mutex
	all map[snapshot.Key]string
}

// forgetter removes snapshots.
type forgetter interface {
	Remove(ctx context.Context, r snapshots.Removal) error
}

// forget removes the snapshot with that UID from this node only.
func forget(ctx context.Context, node forgetter, k snapshot.Key, uid string) error {
	return node.Remove(ctx, snapshots.Removal{ID: snapshots.ID{Key: k, UID: uid}, From: snapshots.FromSpool})
}

func newCopies(node forgetter) *copies {
	return &copies{node: node, all: make(map[snapshot.Key]string)}
}

// note notes that another node's PodSnapshot is being deleted.
func (c *copies) note(s client.Object) {
	uid := s.GetAnnotations()[podsnapshotv1.AnnotationSnapshotUID]
	if uid == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all[snapshot.Key{Namespace: s.GetNamespace(), Name: s.GetName()}] = uid
}

func (c *copies) of(k snapshot.Key) (uid string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	uid, ok = c.all[k]
	return uid, ok
}

// removed forgets a copy, unless another one has been noted since.
func (c *copies) removed(k snapshot.Key, uid string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all[k] == uid {
		delete(c.all, k)
	}
}

// remove removes this node's copy of another node's PodSnapshot that is being deleted, or was.
func (c *copies) remove(ctx context.Context, k snapshot.Key) error {
	uid, ok := c.of(k)
	if !ok {
		return nil
	}
	if err := forget(ctx, c.node, k, uid); err != nil {
		return fmt.Errorf("remove this node's copy of PodSnapshot %s, which is deleted: %w", objects.Named(k), err)
	}
	c.removed(k, uid)
	return nil
}
