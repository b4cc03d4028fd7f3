// Package adopt has a cluster take over the snapshots that another cluster has left in a store. It makes PodSnapshots
// for them, and notes in the store that the old cluster owns them no longer. It runs once, with the rights of an
// administrator.
//
// Who can write into the store may offer anything there. So only what a trusted key has signed is taken over, nothing
// that exists in the cluster is changed, and what is looked at is bounded.
package adopt

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/kube/rollback"
	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
	"diapause.dev/storage/signing"
)

const (
	// maxSnapshots bounds how many snapshots of a store one run looks at. With Config.Namespaces several runs do it.
	maxSnapshots = 20000
	// manifestTime bounds the reading of one manifest.
	manifestTime = time.Minute
	// apart is longer than the unit of creation times.
	apart = 1100 * time.Millisecond
)

// Config says what is taken over.
type Config struct {
	Client         client.Client
	Stores         Stores
	Location       string              // of the store
	From           string              // id of the old cluster; empty: those of all clusters are listed
	Namespaces     []string            // empty: all
	Trusted        []ed25519.PublicKey // who signs snapshots
	AcceptUnsigned bool                // take over what none of them has signed
	Ended          bool                // the administrator says that the old cluster's controller has ended
	DryRun         bool                // only say what would be taken over
	// Now is the API server's clock, as of its last answer.
	Now func() (time.Time, error)
}

// Stores are the stores of a cluster. *snapshots.Central implements it.
type Stores interface {
	rollback.Notes
	// Shared reports whether all nodes see the same store at a location.
	Shared(location string) bool
	// Stored calls fn for each snapshot in the store at location.
	Stored(ctx context.Context, location string, fn func(storage.Listed) error) error
	// StoredManifest returns a snapshot's manifest from the store at location.
	StoredManifest(ctx context.Context, key snapshot.Key, location string) (*storage.Manifest, error)
}

// adoption is one run.
type adoption struct {
	Config
	own        string                                       // id of this cluster
	configName string                                       // of the storage config with the location
	policies   map[string][]podsnapshotv1.PodSnapshotPolicy // by namespace; one that is missing is not in the cluster
}

// Run takes over the snapshots of another cluster, or says what it would take over. After an error, the report says
// what was done before.
func Run(ctx context.Context, c Config) (Report, error) {
	r := Report{From: c.From, DryRun: c.DryRun}
	a := adoption{Config: c, policies: make(map[string][]podsnapshotv1.PodSnapshotPolicy)}
	if err := a.prepare(ctx); err != nil {
		return r, err
	}
	if err := a.find(ctx, &r); err != nil {
		return r, err
	}
	if a.From == "" {
		return r, nil
	}
	if r.Refused = a.mayTake(ctx); a.DryRun {
		return r, nil
	}
	if r.Refused != nil {
		return r, r.Refused
	}
	if !slices.ContainsFunc(r.Snapshots, func(s Snapshot) bool { return s.Not == "" }) {
		return r, fmt.Errorf("no snapshot of cluster %s can be adopted, so nothing was changed", a.From)
	}
	err := a.take(ctx, &r)
	return r, err
}

// prepare reads what it must know of this cluster.
func (a *adoption) prepare(ctx context.Context) error {
	switch {
	case !a.DryRun && a.From == "":
		return errors.New("no cluster is named whose snapshots are to be adopted: a dry run lists them")
	case a.From != "" && !validID(a.From):
		return fmt.Errorf("%.80q is not the id of a cluster: it is the UID of its namespace kube-system", a.From)
	case len(a.Trusted) == 0 && !a.AcceptUnsigned:
		return errors.New("no trusted keys are given: name the file with the public keys of the old cluster's nodes, or " +
			"accept snapshots that are not signed")
	case !a.Stores.Shared(a.Location):
		return fmt.Errorf("store %s is a disk of this node, which no other node sees: use a bucket or a shared file system",
			a.Location)
	}
	if err := a.identify(ctx); err != nil {
		return err
	}
	if a.own == a.From {
		return fmt.Errorf("%s is this cluster itself", a.From)
	}
	return errors.Join(a.findConfig(ctx), a.findPolicies(ctx))
}

// identify reads this cluster's id. The answer also says what time it is.
func (a *adoption) identify(ctx context.Context) error {
	kubeSystem := new(corev1.Namespace)
	if err := a.Client.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, kubeSystem); err != nil {
		return fmt.Errorf("identity of this cluster: read namespace %s: %w", metav1.NamespaceSystem, err)
	}
	a.own = string(kubeSystem.UID)
	return nil
}

// findConfig finds the storage config with the location. Without one, agents do not read from the store.
func (a *adoption) findConfig(ctx context.Context) error {
	var configs podsnapshotv1.PodSnapshotStorageConfigList
	if err := a.Client.List(ctx, &configs); err != nil {
		return fmt.Errorf("read storage configs: %w", err)
	}
	for i := range configs.Items {
		if at, err := rules.Location(&configs.Items[i]); err == nil && at == a.Location {
			a.configName = configs.Items[i].Name
			return nil
		}
	}
	return fmt.Errorf("no PodSnapshotStorageConfig names %s, so no pod is restored from it: create one first", a.Location)
}

// findPolicies reads the policies of all namespaces.
func (a *adoption) findPolicies(ctx context.Context) error {
	var namespaces corev1.NamespaceList
	if err := a.Client.List(ctx, &namespaces); err != nil {
		return fmt.Errorf("read namespaces: %w", err)
	}
	for i := range namespaces.Items {
		if n := &namespaces.Items[i]; n.DeletionTimestamp == nil {
			a.policies[n.Name] = nil
		}
	}
	var policies podsnapshotv1.PodSnapshotPolicyList
	if err := a.Client.List(ctx, &policies); err != nil {
		return fmt.Errorf("read policies: %w", err)
	}
	for i := range policies.Items {
		p := &policies.Items[i]
		if _, there := a.policies[p.Namespace]; there {
			a.policies[p.Namespace] = append(a.policies[p.Namespace], *p)
		}
	}
	return nil
}

// validID reports whether something can be a cluster's id. It becomes part of an object's name.
func validID(cluster string) bool {
	return len(cluster) <= 64 && snapshot.Key{Namespace: cluster, Name: cluster}.Validate() == nil
}

// find looks at the snapshots in the store.
func (a *adoption) find(ctx context.Context, r *Report) error {
	errEnough := errors.New("enough")
	var keys []snapshot.Key
	err := a.Stores.Stored(ctx, a.Location, func(e storage.Listed) error {
		switch {
		case e.Key.Validate() != nil, len(a.Namespaces) > 0 && !slices.Contains(a.Namespaces, e.Key.Namespace):
		case len(keys) == maxSnapshots:
			return errEnough
		default:
			keys = append(keys, e.Key)
		}
		return nil
	})
	if r.More = errors.Is(err, errEnough); err != nil && !r.More {
		return fmt.Errorf("list the snapshots in store %s: %w", a.Location, err)
	}
	for _, k := range keys {
		if err := a.look(ctx, k, r); err != nil {
			return err
		}
	}
	slices.SortFunc(r.Snapshots, func(a, b Snapshot) int { // the newest of a group is made last
		return cmp.Or(cmp.Compare(a.Key.Namespace, b.Key.Namespace), a.created.Compare(b.created),
			cmp.Compare(b.Key.Name, a.Key.Name))
	})
	return nil
}

// look judges one snapshot in the store.
func (a *adoption) look(ctx context.Context, k snapshot.Key, r *Report) error {
	soon, cancel := context.WithTimeout(ctx, manifestTime)
	defer cancel()
	m, err := a.Stores.StoredManifest(soon, k, a.Location)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, storage.ErrNotFound):
		return nil
	case err != nil:
		r.Snapshots = append(r.Snapshots, Snapshot{Key: k, Not: "its manifest cannot be read: " + err.Error()})
		return nil
	}
	s := Snapshot{Key: k, Cluster: m.Meta.Origin.Cluster, created: m.Meta.Created}
	switch {
	case s.Cluster == a.own:
		r.Own++
		return nil
	case a.From != "" && s.Cluster != "" && s.Cluster != a.From:
		r.Others++
		return nil
	}
	if s.Not = a.unfit(m); s.Not == "" {
		s.object = a.object(&m.Meta)
		s.Policy = s.object.Spec.PolicyName
		if s.Not, s.Done, err = a.taken(ctx, s.object); err != nil {
			return err
		}
	}
	r.Snapshots = append(r.Snapshots, s)
	return nil
}

// unfit returns why a snapshot is not taken over, or "" if it can be.
func (a *adoption) unfit(m *storage.Manifest) string {
	_, there := a.policies[m.Meta.Namespace]
	switch signed := m.Signer != nil && signing.Has(a.Trusted, m.Signer); {
	case m.Meta.Origin.Cluster == "":
		return "it does not name its cluster"
	case !validID(m.Meta.Origin.Cluster):
		return "what it names is not a cluster"
	case !signed && !a.AcceptUnsigned && m.Signer == nil:
		return "it is not signed"
	case !signed && !a.AcceptUnsigned:
		return "it is signed by " + m.SignedBy() + ", which is not among the trusted keys"
	case m.Meta.Purpose == snapshot.ForSleep:
		return "it is of a sleep, and served its own pod alone"
	case !there:
		return "there is no namespace " + m.Meta.Namespace + " in this cluster: create it"
	case m.Meta.UID == "":
		return "it has no UID"
	}
	return ""
}

// object returns the PodSnapshot for a snapshot. No node has made it, so that none counts as its origin.
func (a *adoption) object(m *snapshot.Meta) *podsnapshotv1.PodSnapshot {
	o := m.Origin
	s := &podsnapshotv1.PodSnapshot{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: m.Namespace, Name: m.Name, Labels: o.Group, Finalizers: []string{podsnapshotv1.Finalizer},
			Annotations: map[string]string{
				podsnapshotv1.AnnotationAdoptedFrom:    rules.AdoptedFrom(o),
				podsnapshotv1.AnnotationConfirmed:      podsnapshotv1.Confirmed,
				podsnapshotv1.AnnotationWithdrawn:      "true",
				podsnapshotv1.AnnotationSnapshotUID:    m.UID,
				podsnapshotv1.AnnotationPurpose:        m.Purpose.String(),
				podsnapshotv1.AnnotationScope:          string(m.Scope),
				podsnapshotv1.AnnotationOriginPod:      o.Pod,
				podsnapshotv1.AnnotationOriginPodUID:   o.PodUID,
				podsnapshotv1.AnnotationServiceAccount: o.ServiceAccount,
				podsnapshotv1.AnnotationSpecHash:       o.SpecHash,
				podsnapshotv1.AnnotationRunscVersion:   m.Facts.RunscVersion,
				podsnapshotv1.AnnotationArchitecture:   m.Facts.Architecture,
				podsnapshotv1.AnnotationStorageConfig:  a.configName,
			},
		},
		Spec: podsnapshotv1.PodSnapshotSpec{PolicyName: a.policyOf(m)},
	}
	for k, v := range s.Annotations {
		if v == "" {
			delete(s.Annotations, k)
		}
	}
	return s
}

// policyOf returns the name of the one policy that selects the pod that was saved, or podsnapshotv1.NoPolicy.
func (a *adoption) policyOf(m *snapshot.Meta) string {
	var sandbox struct {
		Labels map[string]string `json:"labels"` // of the pod, and some of the kubelet's
	}
	if json.Unmarshal(m.Pod.Sandbox, &sandbox) != nil || sandbox.Labels == nil {
		sandbox.Labels = m.Origin.Group
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Origin.Pod, Labels: sandbox.Labels}}
	if p, err := rules.Only(pod, a.policies[m.Namespace]); err == nil && p != nil {
		return p.Name
	}
	return podsnapshotv1.NoPolicy
}

// taken returns why a PodSnapshot cannot be made: there is another one with its name. Done says that this one is there,
// and complete.
func (a *adoption) taken(ctx context.Context, s *podsnapshotv1.PodSnapshot) (why string, done bool, err error) {
	there := new(podsnapshotv1.PodSnapshot)
	err = a.Client.Get(ctx, client.ObjectKeyFromObject(s), there)
	switch {
	case apierrors.IsNotFound(err):
		return "", false, nil
	case err != nil:
		return "", false, fmt.Errorf("read PodSnapshot %s/%s: %w", s.Namespace, s.Name, err)
	case !same(there, s) || there.DeletionTimestamp != nil:
		return "there is a PodSnapshot with its name, which is left as it is", false, nil
	}
	return "", len(there.Status.Conditions) > 0, nil
}

// same reports whether a PodSnapshot is the one that this or an earlier run has made.
func same(there, s *podsnapshotv1.PodSnapshot) bool {
	for _, x := range []string{podsnapshotv1.AnnotationAdoptedFrom, podsnapshotv1.AnnotationSnapshotUID} {
		if there.Annotations[x] != s.Annotations[x] {
			return false
		}
	}
	return true
}
