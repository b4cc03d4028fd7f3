package objects

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/errkind"
	"diapause.dev/agent/kube/rules"
	"diapause.dev/agent/place"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// List reads objects.
type List func(context.Context, client.ObjectList, ...client.ListOption) error

// Rules returns a namespace's policies, and a function that finds the storage configs that they name.
func (o *Objects) Rules(ctx context.Context, namespace string, read List) ([]podsnapshotv1.PodSnapshotPolicy,
	rules.Find, error,
) {
	var policies podsnapshotv1.PodSnapshotPolicyList
	if err := read(ctx, &policies, client.InNamespace(namespace)); err != nil {
		return nil, nil, fmt.Errorf("read policies of namespace %s: %w", namespace, err)
	}
	var configs podsnapshotv1.PodSnapshotStorageConfigList
	if err := read(ctx, &configs); err != nil {
		return nil, nil, fmt.Errorf("read storage configs: %w", err)
	}
	return policies.Items, func(name string) (*podsnapshotv1.PodSnapshotStorageConfig, bool) {
		for i := range configs.Items {
			if configs.Items[i].Name == name {
				return &configs.Items[i], true
			}
		}
		return nil, false
	}, nil
}

// PolicyOf returns a PodSnapshot's policy, or nil if it is gone.
func (o *Objects) PolicyOf(ctx context.Context, s *podsnapshotv1.PodSnapshot) (*podsnapshotv1.PodSnapshotPolicy,
	error,
) {
	policy, name := new(podsnapshotv1.PodSnapshotPolicy), client.ObjectKey{Namespace: s.Namespace, Name: s.Spec.PolicyName}
	if err := o.Get(ctx, name, policy); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("read PodSnapshotPolicy %s: %w", name, err)
	}
	return policy, nil
}

// StoreOf returns the location of the store that a PodSnapshot is in, or would be in: where it was stored or, failing
// that, the one in its storage config. Empty means the agents' own store.
func (o *Objects) StoreOf(ctx context.Context, s *podsnapshotv1.PodSnapshot) (string, error) {
	if at := rules.StoredAt(s); at != "" {
		return at, nil
	}
	name := s.Annotations[podsnapshotv1.AnnotationStorageConfig]
	if name == "" {
		return "", nil
	}
	config := new(podsnapshotv1.PodSnapshotStorageConfig)
	err := o.Get(ctx, client.ObjectKey{Name: name}, config)
	if apierrors.IsNotFound(err) {
		return "", nil // so it is in no store, and never will be
	}
	if err != nil {
		return "", fmt.Errorf("read PodSnapshotStorageConfig %s: %w", name, err)
	}
	return rules.Location(config)
}

// Stores returns the locations of the stores that the storage configs name, and own before them. Until the caches are
// filled, it returns an error of kind errkind.ErrClusterAway.
func (o *Objects) Stores(ctx context.Context, own string) ([]string, error) {
	select {
	case <-o.Synced:
	default:
		return nil, fmt.Errorf("storage configs: %w", errkind.ErrClusterAway)
	}
	return o.Configured(ctx, own, o.List)
}

// Configured is Stores with a choice of how to read. It does not wait for the caches.
func (o *Objects) Configured(ctx context.Context, own string, read List) ([]string, error) {
	return Configured(ctx, own, read)
}

// Configured returns the locations of the agents' own store and of those that storage configs name.
func Configured(ctx context.Context, own string, read List) ([]string, error) {
	var configs podsnapshotv1.PodSnapshotStorageConfigList
	if err := read(ctx, &configs); err != nil {
		return nil, fmt.Errorf("read storage configs: %w", err)
	}
	locations := []string{own}
	for i := range configs.Items {
		location, err := rules.Location(&configs.Items[i]) // the config's status says what is wrong with it
		if err == nil && place.Validate(location) == nil && !slices.Contains(locations, location) {
			locations = append(locations, location)
		}
	}
	return locations, nil
}

// Referred returns what Stores returns, and the locations of the stores that PodSnapshots are in.
func (o *Objects) Referred(ctx context.Context, own string) ([]string, error) {
	locations, err := o.Stores(ctx, own)
	if err != nil {
		return nil, err
	}
	var all podsnapshotv1.PodSnapshotList
	if err := o.List(ctx, &all); err != nil {
		return nil, fmt.Errorf("read PodSnapshots: %w", err)
	}
	for i := range all.Items {
		if at := rules.StoredAt(&all.Items[i]); at != "" && !slices.Contains(locations, at) {
			locations = append(locations, at)
		}
	}
	return locations, nil
}
