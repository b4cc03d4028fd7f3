// Package sightings keeps which pods the controller has seen, so that it can tell whether a PodSnapshot is of a pod
// that was on the PodSnapshot's node. Pods that are gone are remembered, up to a number of them. After a restart of the
// controller only those are known that are there.
package sightings

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/kube/rules"
)

// most is how many pods that are gone are remembered. One takes some 1 KiB.
const most = 20_000

// Sightings are the pods that were seen. Its methods may be called concurrently.
type Sightings struct {
	cached, live client.Reader

	mu    sync.Mutex
	gone  map[pod]rules.Seen
	order []pod // of those that are gone, the next to be forgotten first
}

// pod identifies a pod among those that have had its name.
type pod struct {
	name client.ObjectKey
	uid  string
}

// New returns the sightings of a controller whose cache keeps pods as Cached says. Live reads from the API server.
func New(cached, live client.Reader) *Sightings {
	return &Sightings{cached: cached, live: live, gone: make(map[pod]rules.Seen)}
}

// Cached says what the controller's cache keeps of pods: little, for there are many.
func Cached() cache.ByObject { return cache.ByObject{Transform: reduce} }

const (
	reducedKind = "Reduced"                   // of a pod that reduce has returned
	hashKey     = "diapause.dev/reduced-spec" // annotation with the hash of such a pod's distilled spec
)

// reduce returns what is kept of a pod. It changes nothing that it has returned before.
func reduce(o any) (any, error) {
	p, ok := o.(*corev1.Pod)
	if !ok || p.Kind == reducedKind {
		return o, nil
	}
	seen := rules.SeenOf(p)
	annotations := map[string]string{hashKey: seen.SpecHash}
	if seen.Mirror {
		annotations[corev1.MirrorPodAnnotationKey] = ""
	}
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{Kind: reducedKind},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion, Labels: p.Labels,
			Annotations: annotations,
		},
		Spec: corev1.PodSpec{NodeName: p.Spec.NodeName, ServiceAccountName: p.Spec.ServiceAccountName},
	}, nil
}

// seenOf returns what is kept of a pod that reduce has returned.
func seenOf(reduced *corev1.Pod) rules.Seen {
	seen := rules.SeenOf(reduced)
	seen.SpecHash = reduced.Annotations[hashKey]
	return seen
}

// Watch begins to remember the pods that are deleted from a cache.
func (s *Sightings) Watch(ctx context.Context, c cache.Cache) error {
	pods, err := c.GetInformer(ctx, &corev1.Pod{})
	if err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	if _, err := pods.AddEventHandler(toolscache.ResourceEventHandlerFuncs{DeleteFunc: s.left}); err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	return nil
}

// left remembers a pod that is gone.
func (s *Sightings) left(o any) {
	if last, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = last.Obj
	}
	p, ok := o.(*corev1.Pod)
	if !ok || p.Spec.NodeName == "" {
		return
	}
	id := pod{client.ObjectKeyFromObject(p), string(p.UID)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.gone[id]; known {
		return
	}
	if s.order = append(s.order, id); len(s.order) > most {
		delete(s.gone, s.order[0])
		s.order = s.order[1:]
	}
	s.gone[id] = seenOf(p)
}

// Pods returns the pods with that name that may be the one with that UID: the one that is gone, and the one in the
// cache. An empty uid is that of no pod that is gone. A node has chosen the name, which may be none.
func (s *Sightings) Pods(ctx context.Context, name client.ObjectKey, uid string) (all []rules.Seen, err error) {
	s.mu.Lock()
	if gone, ok := s.gone[pod{name, uid}]; ok {
		all = append(all, gone)
	}
	s.mu.Unlock()
	cached, err := read(ctx, s.cached, name, seenOf)
	return append(all, cached...), err
}

// Gone reports whether there is no longer a pod with that name and UID, by the API server's word. A node has chosen the
// name, which may be none.
func (s *Sightings) Gone(ctx context.Context, name client.ObjectKey, uid string) (bool, error) {
	if len(validation.IsDNS1123Subdomain(name.Name)) > 0 {
		return true, nil
	}
	for _, from := range []client.Reader{s.cached, s.live} { // the cache may be behind
		p := new(corev1.Pod)
		err := from.Get(ctx, name, p)
		if err == nil && string(p.UID) == uid {
			return false, nil
		}
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("read pod %s: %w", name, err)
		}
	}
	return true, nil
}

// Now returns the pod with that name, or none, as the API server has it: the cache may be behind.
func (s *Sightings) Now(ctx context.Context, name client.ObjectKey) ([]rules.Seen, error) {
	return read(ctx, s.live, name, rules.SeenOf)
}

// read returns what is kept of the pod with that name, or nothing if there is none.
func read(ctx context.Context, from client.Reader, name client.ObjectKey,
	seen func(*corev1.Pod) rules.Seen,
) ([]rules.Seen, error) {
	if len(validation.IsDNS1123Subdomain(name.Name)) > 0 {
		return nil, nil
	}
	p := new(corev1.Pod)
	if err := from.Get(ctx, name, p); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("read pod %s: %w", name, err)
	}
	return []rules.Seen{seen(p)}, nil
}
