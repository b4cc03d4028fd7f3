package control

import (
	"context"
	"sync"
)

// Background is the work that outlives what has begun it. Wait waits for it.
type Background struct {
	Life context.Context // the work ends with it
	sync.WaitGroup
}

// NewBackground returns background work that ends with life.
func NewBackground(life context.Context) *Background { return &Background{Life: life} }
