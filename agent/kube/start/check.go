package start

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/podspec"
	"diapause.dev/agent/kube/rules"
	"diapause.dev/agent/lives"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// checker decides whether this node may restore a snapshot, and from which store.
type checker struct {
	objects  *objects.Objects
	node     Snapshots
	nodeName string
	store    string // location of the agent's own store
}

// Snapshots reads the snapshots that this node and the stores have. *snapshots.Catalog implements it.
type Snapshots interface {
	// HasLocal reports whether a snapshot can be restored on this node without a store.
	HasLocal(ctx context.Context, key snapshot.Key) (bool, error)
	// TrustedManifest returns a snapshot's manifest, from this node or from the store at location. The error is of kind
	// storage.ErrUntrusted if this node may not restore the snapshot because of its signature.
	TrustedManifest(ctx context.Context, key snapshot.Key, location string) (*storage.Manifest, error)
}

// storeOf returns the location of the store that a snapshot is read from. The node that made a PodSnapshot has written
// where it is stored, and may have been taken over. So only stores are read that an operator has named.
func (c *checker) storeOf(ctx context.Context, s *podsnapshotv1.PodSnapshot) (string, error) {
	location, err := c.objects.StoreOf(ctx, s)
	if err != nil || location == "" {
		return location, err
	}
	for _, read := range []objects.List{c.objects.List, c.objects.Fresh} {
		configured, err := c.objects.Configured(ctx, c.store, read)
		if err != nil {
			return "", err
		}
		if slices.Contains(configured, location) {
			return location, nil
		}
	}
	return "", rules.Refuse("PodSnapshot %s is said to be stored at %.200q, which no PodSnapshotStorageConfig names: if "+
		"it is to be trusted, make one with that location", objects.KeyOf(s), location)
}

// available checks that this node can get a snapshot, and that the manifest matches the PodSnapshot: the manifest is
// what counts. It returns the UID in the manifest.
func (c *checker) available(ctx context.Context, pod *corev1.Pod, s *podsnapshotv1.PodSnapshot,
	location string, before lives.Past,
) (uid string, err error) {
	k := objects.KeyOf(s)
	local, err := c.node.HasLocal(ctx, k)
	if err != nil {
		return "", fmt.Errorf("look for %s: %w", k, err)
	}
	here := local || rules.NodeLocal(s) && s.Annotations[podsnapshotv1.AnnotationOriginNode] == c.nodeName
	if err := rules.Elsewhere(s); err != nil && !here {
		return "", err
	}
	m, err := c.node.TrustedManifest(ctx, k, location)
	if err != nil {
		return "", fmt.Errorf("manifest of PodSnapshot %s: %w", k, err)
	}
	if err := genuine(pod, s, m); err != nil {
		return "", err
	}
	if err := itsOwn(pod, s, m, before); err != nil {
		return "", err
	}
	return m.Meta.UID, c.atHome(ctx, pod, s, m)
}

// atHome refuses a snapshot of another cluster, and one of a namespace that was deleted, whatever now has its name.
// An administrator may have had this cluster take it over. While the API server does not say what is here, the error is
// of kind rules.ErrPending.
func (c *checker) atHome(ctx context.Context, pod *corev1.Pod, s *podsnapshotv1.PodSnapshot,
	m *storage.Manifest,
) error {
	o := m.Meta.Origin
	if rules.Adopted(s, o) {
		return nil
	}
	for _, x := range []struct {
		what, stored string
		read         func() (string, error)
	}{
		{"cluster", o.Cluster, func() (string, error) { return c.objects.IDs.Identity(ctx) }},
		{"namespace", o.NamespaceUID, func() (string, error) { return c.objects.IDs.NamespaceOf(ctx, pod) }},
	} {
		if x.stored == "" { // an earlier agent has made it, or one that did not reach the API server
			continue
		}
		here, err := x.read()
		if err != nil {
			return fmt.Errorf("%w: %w", rules.ErrPending, err)
		}
		if x.stored != here {
			return rules.Refuse("snapshot %s was made in another %s: UID %.80q then, %s now", m.Meta.Key, x.what, x.stored, here)
		}
	}
	return nil
}

// genuine refuses a manifest that does not match the PodSnapshot or the pod.
func genuine(pod *corev1.Pod, s *podsnapshotv1.PodSnapshot, m *storage.Manifest) error {
	o := m.Meta.Origin
	facts := []struct{ what, stored, want string }{
		{"identity", m.Meta.UID, s.Annotations[podsnapshotv1.AnnotationSnapshotUID]},
		{"scope", m.Meta.Scope.String(), rules.Scope(s).String()},
		{"purpose", m.Meta.Purpose.String(), rules.Purpose(s).String()},
		{"service account", o.ServiceAccount, rules.ServiceAccount(pod)},
		{"distilled spec", o.SpecHash, podspec.Distil(pod).Hash()},
	}
	if m.Meta.Scope == snapshot.RootfsOnly {
		facts = facts[:4]
	}
	for _, x := range facts {
		if x.stored != x.want {
			return rules.Refuse("the stored snapshot does not match PodSnapshot %s: its %s differs (%.80q stored, %.80q here)",
				objects.KeyOf(s), x.what, x.stored, x.want)
		}
	}
	return nil
}
