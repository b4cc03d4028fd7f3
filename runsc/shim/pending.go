package shim

import "sync"

// pending is work for containers in the background. The removal of a container waits for its own. The zero value has
// none. Its methods may be called concurrently.
type pending struct {
	mu  sync.Mutex
	all map[string]*sync.WaitGroup // by container id
}

func (p *pending) of(id string) *sync.WaitGroup {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil {
		p.all = make(map[string]*sync.WaitGroup)
	}
	if p.all[id] == nil {
		p.all[id] = new(sync.WaitGroup)
	}
	return p.all[id]
}

// forget forgets a container that is removed.
func (p *pending) forget(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.all, id)
}
