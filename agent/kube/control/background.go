package control

import (
	"context"
	"sync"
)

// Background is the work that outlives what has begun it. Wait waits for it.
type Background struct {
	Life context.Context // the work ends with it; set before there is any
	sync.WaitGroup
}
