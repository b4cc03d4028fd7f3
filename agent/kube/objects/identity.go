package objects

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Identities tell this cluster and its namespaces from others that have their names. Its methods may be called
// concurrently.
type Identities struct {
	live    client.Reader // reads from the API server
	log     *slog.Logger
	homes   homes
	cluster atomic.Pointer[string] // nil: not known yet
}

// Identity returns the id that distinguishes this cluster's snapshots from those of other clusters in one store. It
// is the UID of the namespace kube-system, which exists as long as the cluster does.
func (id *Identities) Identity(ctx context.Context) (string, error) {
	if uid := id.cluster.Load(); uid != nil {
		return *uid, nil
	}
	ns := new(corev1.Namespace)
	if err := id.live.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, ns); err != nil {
		return "", fmt.Errorf("identity of the cluster: read namespace %s: %w", metav1.NamespaceSystem, err)
	}
	uid := string(ns.UID)
	id.cluster.Store(&uid)
	return uid, nil
}

// IdentityOrNone is Identity for a checkpoint, which does not wait for the API server. A snapshot without an identity
// is merely never swept.
func (id *Identities) IdentityOrNone(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, FreshTime)
	defer cancel()
	uid, err := id.Identity(ctx)
	if err != nil {
		id.log.Warn("the snapshot will not say of which cluster it is", "error", err)
	}
	return uid
}

// NamespaceUID returns the UID of the namespace with this name that is there now. A namespace that was deleted and made
// again is another one.
func (id *Identities) NamespaceUID(ctx context.Context, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, FreshTime)
	defer cancel()
	ns := new(corev1.Namespace)
	if err := id.live.Get(ctx, client.ObjectKey{Name: name}, ns); err != nil {
		return "", fmt.Errorf("identity of namespace %s: %w", name, err)
	}
	return string(ns.UID), nil
}

// NamespaceEnds reports whether a namespace is being deleted, as far as the API server says so.
func (id *Identities) NamespaceEnds(ctx context.Context, name string) bool {
	ctx, cancel := context.WithTimeout(ctx, FreshTime)
	defer cancel()
	ns := new(corev1.Namespace)
	return id.live.Get(ctx, client.ObjectKey{Name: name}, ns) == nil && ns.DeletionTimestamp != nil
}

// NamespaceOf returns the UID of a pod's namespace. If the API server does not answer, it is what the API server has
// said before for this pod: a namespace outlives its pods.
func (id *Identities) NamespaceOf(ctx context.Context, pod *corev1.Pod) (string, error) {
	uid, err := id.NamespaceUID(ctx, pod.Namespace)
	if err == nil {
		id.homes.put(pod.UID, uid)
		return uid, nil
	}
	if before := id.homes.get(pod.UID); before != "" {
		return before, nil
	}
	return "", err
}

// homes are the UIDs of pods' namespaces, by the pods' UIDs. Its methods may be called concurrently.
type homes struct {
	mu  sync.Mutex
	all map[types.UID]string
}

// maxHomes bounds homes. Beyond it all are forgotten, and asked for again.
const maxHomes = 4096

func (h *homes) put(pod types.UID, namespace string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all == nil || len(h.all) >= maxHomes {
		h.all = make(map[types.UID]string)
	}
	h.all[pod] = namespace
}

func (h *homes) get(pod types.UID) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.all[pod]
}

// NamespaceOrNone is NamespaceUID for a checkpoint, which does not wait for the API server.
func (id *Identities) NamespaceOrNone(ctx context.Context, name string) string {
	uid, err := id.NamespaceUID(ctx, name)
	if err != nil {
		id.log.Warn("the snapshot will not say of which namespace it is", "error", err)
	}
	return uid
}
