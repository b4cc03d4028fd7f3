package pgalloc

import (
	"context"
	"fmt"

	"gvisor.dev/gvisor/pkg/sentry/checkpoint"
	"gvisor.dev/gvisor/pkg/sync"
)

// promises are the private memory files of a restore, while some of them are still to be made. What is loaded before
// that refers to them by address. A sentry restores once at most, so there is one table.
type promises struct {
	mu    sync.Mutex
	files map[checkpoint.ResourceID]*MemoryFile // nil: nothing is promised
	made  map[checkpoint.ResourceID]bool
}

var promised promises

// maxPromised bounds the files that are promised: a state may name any number of them. A pod has as many as it has
// root file systems and volumes.
const maxPromised = 1 << 12

// BeginPromises has MemoryFileFor return memory files that NewMemoryFile makes later, until EndPromises.
func BeginPromises() { promised.begin() }

// EndPromises returns an error if a memory file was promised that NewMemoryFile has not made. All that is loaded
// afterwards finds memory files by its context again.
func EndPromises() error { return promised.end() }

// MemoryFileFor returns the private memory file with an ID for an object that is loaded. While files are promised, the
// file must not be used yet.
func MemoryFileFor(ctx context.Context, id checkpoint.ResourceID) (f *MemoryFile, ok bool) {
	if f, ok = promised.promise(id); !ok {
		f, ok = MemoryFileMapFromContext(ctx)[id]
	}
	return f, ok
}

func (p *promises) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.files = make(map[checkpoint.ResourceID]*MemoryFile)
	p.made = make(map[checkpoint.ResourceID]bool)
}

func (p *promises) end() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer func() { p.files, p.made = nil, nil }()
	for id := range p.files {
		if !p.made[id] {
			return fmt.Errorf("no container has brought the memory file for %q", id)
		}
	}
	return nil
}

// promise returns the file with an ID, made or to be made, or false if nothing is promised, or too much.
func (p *promises) promise(id checkpoint.ResourceID) (*MemoryFile, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.files[id]; p.files == nil || !known && len(p.files) >= maxPromised {
		return nil, false
	}
	return p.file(id), true
}

// make returns an empty MemoryFile for NewMemoryFile: that which was promised, if there is one.
func (p *promises) make(id checkpoint.ResourceID) *MemoryFile {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.files == nil || !id.Ok() || p.made[id] {
		return new(MemoryFile)
	}
	p.made[id] = true
	return p.file(id)
}

func (p *promises) file(id checkpoint.ResourceID) *MemoryFile {
	f, ok := p.files[id]
	if !ok {
		f = new(MemoryFile)
		p.files[id] = f
	}
	return f
}
