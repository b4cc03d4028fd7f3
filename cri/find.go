package cri

import (
	"context"
	"fmt"
	"slices"
	"strings"

	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// minPrefix is the least number of hexadecimal digits of a shortened id.
const minPrefix = 4

// maxTarget bounds a target, in bytes: a namespace, a slash and a name.
const maxTarget = 2*253 + 1

// Finder finds the pods of this node, and tells what state they and their containers are in.
type Finder struct {
	runtime criapi.RuntimeServiceClient
	tasks   *Tasks
}

// Find returns the pod that target means. A target is "namespace/name", a pod's name, its UID, or the id of a pod or
// of one of its containers. An id may be shortened to four digits or more while that is unambiguous. Of pods with
// equal names, Find returns the one that runs or, if none runs, the newest. The error is of kind ErrNotFound or
// ErrAmbiguous. The latter names the candidates.
func (f *Finder) Find(ctx context.Context, target string) (*Pod, error) {
	pods, err := f.list(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("find pod %.80q: %w", target, err)
	}
	p, err := choose(pods, target)
	if err != nil {
		return nil, fmt.Errorf("find pod %.80q: %w", target, err)
	}
	if err := f.fill(ctx, p, f.tasks.process); err != nil {
		return nil, fmt.Errorf("find pod %.80q: %w", target, err)
	}
	return p, nil
}

// choose picks the pod that target means. Pods are ordered newest first. A full id goes before a name, and a name
// before the beginning of an id.
func choose(pods []*Pod, target string) (*Pod, error) {
	if target == "" || len(target) > maxTarget {
		return nil, fmt.Errorf("want namespace/name, a pod's name, or the id of a pod or container: %w", ErrNotFound)
	}
	for _, candidates := range [][]*Pod{
		matching(pods, func(p *Pod) bool { return hasID(p, func(id string) bool { return id == target }) }),
		latest(matching(pods, func(p *Pod) bool { return p.UID == target })),
		latest(matching(pods, func(p *Pod) bool { return named(p, target) })),
		prefixed(pods, target),
	} {
		switch len(candidates) {
		case 0:
		case 1:
			return candidates[0], nil
		default:
			return nil, fmt.Errorf("%w: it may be %s", ErrAmbiguous, describe(candidates))
		}
	}
	return nil, fmt.Errorf("no pod of this node has this name or id: %w", ErrNotFound)
}

// Newest returns the id of the newest sandbox of the pod with this UID, apart from one, whether it runs or has ended.
// It is empty if there is none.
func (f *Finder) Newest(ctx context.Context, uid, except string) (id string, err error) {
	pods, err := f.list(ctx, nil)
	if err != nil {
		return "", fmt.Errorf("sandboxes of pod %s: %w", uid, err)
	}
	for _, p := range pods { // newest first
		if p.UID == uid && p.ID != except {
			return p.ID, nil
		}
	}
	return "", nil
}

// LastRun returns the id of the newest sandbox of the pod with this UID, apart from one, in which a container was
// started. It is empty if there is none.
func (f *Finder) LastRun(ctx context.Context, uid, except string) (id string, err error) {
	pods, err := f.list(ctx, nil)
	if err != nil {
		return "", fmt.Errorf("sandboxes of pod %s: %w", uid, err)
	}
	return lastRun(pods, uid, except), nil
}

func lastRun(pods []*Pod, uid, except string) string {
	for _, p := range pods { // newest first
		if p.UID == uid && p.ID != except && len(p.Containers) > 0 && !p.unstarted() {
			return p.ID
		}
	}
	return ""
}

// Taken returns a ready pod that has one of these names (namespace/name), or nil if there is none.
func (f *Finder) Taken(ctx context.Context, names []string) (*Pod, error) {
	pods, err := f.list(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("look for pods named %.200q: %w", names, err)
	}
	return taken(pods, names), nil
}

func taken(pods []*Pod, names []string) *Pod {
	for _, p := range pods {
		if p.Ready && slices.Contains(names, p.String()) {
			return p
		}
	}
	return nil
}

func matching(pods []*Pod, want func(*Pod) bool) []*Pod {
	var out []*Pod
	for _, p := range pods {
		if want(p) {
			out = append(out, p)
		}
	}
	return out
}

func named(p *Pod, target string) bool {
	if strings.Contains(target, "/") {
		return p.String() == target
	}
	return p.Name == target
}

func hasID(p *Pod, want func(id string) bool) bool {
	return want(p.ID) || slices.ContainsFunc(p.Containers, func(x Container) bool { return want(x.ID) })
}

func prefixed(pods []*Pod, target string) []*Pod {
	if len(target) < minPrefix || strings.Trim(target, "0123456789abcdef") != "" {
		return nil
	}
	return matching(pods, func(p *Pod) bool {
		return hasID(p, func(id string) bool { return strings.HasPrefix(id, target) })
	})
}

// latest returns the pods that run or, if none runs, the newest for each namespace and name. Pods are ordered newest
// first.
func latest(pods []*Pod) []*Pod {
	if ready := matching(pods, func(p *Pod) bool { return p.Ready }); len(ready) > 0 {
		return ready
	}
	seen := make(map[string]bool)
	return matching(pods, func(p *Pod) bool {
		first := !seen[p.String()]
		seen[p.String()] = true
		return first
	})
}

// describe lists at most a few pods, for a person to choose from.
func describe(pods []*Pod) string {
	const most = 8
	var names []string
	for i, p := range pods {
		if i == most {
			names = append(names, fmt.Sprintf("%d more", len(pods)-most))
			break
		}
		names = append(names, fmt.Sprintf("%s (id %.13s)", p, p.ID))
	}
	return strings.Join(names, ", ")
}
