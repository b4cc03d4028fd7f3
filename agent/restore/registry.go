package restore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	"diapause.dev/agent/asleep"
	"diapause.dev/agent/requests"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/sidecar"
)

// reviveTime bounds reading a snapshot's manifest for a sidecar that has come back.
const reviveTime = 30 * time.Second

// registry has the restores of this node: those that this agent serves, and those that an earlier agent has written
// down in the directories of requests. Its methods may be called concurrently.
type registry struct {
	records
	opener *opener
	marks  *asleep.Marks
	log    *slog.Logger

	mu  sync.Mutex
	all map[string]*restore // by request
}

// ofRequest returns the restore of a request that this agent serves, or nil.
func (g *registry) ofRequest(request string) *restore {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.all[request]
}

// ofSandbox returns the restores of a sandbox that this agent serves.
func (g *registry) ofSandbox(sandbox string) (list []*restore) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range g.all {
		if r.SandboxID == sandbox {
			list = append(list, r)
		}
	}
	return list
}

// add adds a restore that this agent serves. If its request has one already, add returns that.
func (g *registry) add(r *restore) *restore {
	g.mu.Lock()
	defer g.mu.Unlock()
	if other := g.all[r.Request]; other != nil {
		return other
	}
	g.all[r.Request] = r
	return r
}

// remove removes a restore that has ended.
func (g *registry) remove(r *restore) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.all, r.Request)
}

// unloaded returns how many bytes of memory the pods that may be woken, or are waking, have not loaded yet.
func (g *registry) unloaded() (n int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range g.all {
		r.mu.Lock()
		if r.admitted {
			n += max(r.memory()-r.image.Read(), 0)
		}
		r.mu.Unlock()
	}
	return n
}

// find returns a restore. If an earlier agent prepared it, find makes it from what that agent wrote down.
func (g *registry) find(ctx context.Context, request string) (*restore, error) {
	if r := g.ofRequest(request); r != nil {
		return r, nil
	}
	r, err := g.revive(ctx, request)
	if err != nil {
		return nil, fmt.Errorf("request %s: %w: %w", request, requests.ErrUnknown, err)
	}
	return r, nil
}

func (g *registry) revive(ctx context.Context, request string) (*restore, error) {
	r, err := g.recall(request)
	if err != nil {
		return nil, err
	}
	if !r.Loaded {
		ctx, cancel := context.WithTimeout(ctx, reviveTime)
		defer cancel()
		if err := g.opener.open(ctx, r); err != nil {
			return nil, err
		}
	}
	added := g.add(r)
	if added != r {
		r.image.Release()
	}
	return added, nil
}

// recall makes a restore from what an earlier agent wrote down.
func (g *registry) recall(request string) (*restore, error) {
	rec, err := g.read(request)
	if err != nil {
		return nil, err
	}
	r := newRestore(rec)
	r.image = g.opener.loader.Image(r.imageOptions(), nil)
	r.revived = true
	r.admitted = r.Wakes && !g.marks.Asleep(request)
	if r.Loaded {
		r.state = loaded
		r.concluded.Do(func() { close(r.ended) })
	}
	return r, nil
}

// written returns the requests that have directories. Not all of them are restores.
func (g *registry) written() []string {
	all, err := g.dir.All()
	if err != nil {
		g.log.Warn("request directories unreadable", "error", err)
	}
	return all
}

// recordsOf returns the records of a sandbox, by their requests, whether this agent serves them or not.
func (g *registry) recordsOf(sandbox string) iter.Seq2[string, record] {
	return func(yield func(string, record) bool) {
		for _, request := range g.written() {
			if rec, err := g.read(request); err == nil && rec.SandboxID == sandbox && !yield(request, rec) {
				return
			}
		}
	}
}

// forgetUnanswered removes the other requests of a sandbox whose restore has ended. An agent has left them that was
// killed before it could tell the shim its decision; the shim has asked the next agent, and got another request.
func (g *registry) forgetUnanswered(sandbox string) {
	for request := range g.recordsOf(sandbox) {
		if g.ofRequest(request) != nil || g.marks.Asleep(request) {
			continue
		}
		if err := g.dir.Remove(request); err != nil {
			g.log.Warn("request directory not removed", "request", request, "error", err)
		}
	}
}

// loads returns the request that is still loading a sandbox, or "". After a restart of the agent, ofSandbox lacks
// requests whose sidecar has not come back yet. loads finds them in the request directories.
func (g *registry) loads(sandbox string) string {
	for _, r := range g.ofSandbox(sandbox) {
		if !r.hasAll() && !g.marks.Asleep(r.Request) {
			return r.Request
		}
	}
	for _, request := range g.written() {
		r, err := g.recall(request)
		if err == nil && r.SandboxID == sandbox && !r.Loaded && g.served(r.Request) && !g.marks.Held(r.Request) {
			return r.Request
		}
	}
	return ""
}

// served reports whether the sidecar of a restore is running. A sidecar runs at least until its sandbox has everything.
func (g *registry) served(request string) bool {
	held, err := sidecar.Held(g.dir.Path(request))
	if err != nil {
		g.log.Warn("not known whether a sidecar lives", "request", request, "error", err)
	}
	return held
}

// orphan reports whether the sidecar of a restore ended while no agent was running.
func (g *registry) orphan(r *restore) bool {
	r.mu.Lock()
	maybe := r.revived && r.serving == 0 && !r.Loaded && r.Scope != snapshot.RootfsOnly
	r.mu.Unlock()
	return maybe && !g.served(r.Request) && !g.marks.Asleep(r.Request)
}

// lookUp returns the restore of a request, without opening its snapshot; nil: the request is no restore, or newer says
// that a newer agent has written it.
func (g *registry) lookUp(request string) (r *restore, newer bool) {
	if r = g.ofRequest(request); r != nil {
		return r, false
	}
	r, err := g.recall(request)
	return r, errors.Is(err, errNewer)
}
