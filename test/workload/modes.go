package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"

	"diapause.dev/test/workload/internal/fidelity"
	"diapause.dev/test/workload/internal/memory"
	"diapause.dev/test/workload/internal/order"
)

// seed is that of the memory of the mode serve.
const seed = 0x64696170

// maxRate bounds what a writer may be asked for, in MiB per second.
const maxRate = 1 << 20

func serve(ctx context.Context, o options) error {
	m, err := memory.New(o.mib<<20, seed)
	if err != nil {
		return err
	}
	w := writer{ctx: ctx, memory: m}
	s := newServer()
	s.handle("GET /verify", func(*http.Request) (any, error) { return m.Verify(), nil })
	s.handle("POST /dirty", w.dirty)
	err = s.run(ctx, o.listen)
	w.stop()
	return errors.Join(err, m.Close())
}

// writer keeps at most one writer of the memory going.
type writer struct {
	ctx    context.Context // of the program
	memory *memory.Memory

	mu     sync.Mutex
	cancel context.CancelFunc // nil: none goes
	done   chan struct{}
}

// dirty sets the writer's rate; 0 stops it.
func (w *writer) dirty(r *http.Request) (any, error) {
	rate, err := strconv.ParseFloat(r.FormValue("mib_per_s"), 64)
	if err != nil || !(rate >= 0 && rate <= maxRate) {
		return nil, fmt.Errorf("mib_per_s=%.40q: want 0 to %d", r.FormValue("mib_per_s"), maxRate)
	}
	w.stop()
	if rate > 0 {
		w.start(rate)
	}
	return map[string]float64{"mib_per_s": rate}, nil
}

func (w *writer) start(rate float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cancel != nil {
		return // another request was first
	}
	ctx, cancel := context.WithCancel(w.ctx)
	done := make(chan struct{})
	w.cancel, w.done = cancel, done
	go func() {
		defer close(done)
		w.memory.Dirty(ctx, rate)
	}()
}

func (w *writer) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cancel != nil {
		w.cancel()
		<-w.done
		w.cancel = nil
	}
}

func inOrder(ctx context.Context, o options) error {
	r, err := order.New(o.mib << 20)
	if err != nil {
		return err
	}
	w := order.NewWriter(r)
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { w.Run(ctx) })
	s := newServer()
	s.handle("GET /verify", func(*http.Request) (any, error) { return w.Verify(), nil })
	s.handle("POST /freeze", func(r *http.Request) (any, error) {
		on, err := strconv.ParseBool(r.FormValue("on"))
		if err != nil {
			return nil, fmt.Errorf("on=%.40q: want true or false", r.FormValue("on"))
		}
		w.Freeze(on)
		return w.Verify(), nil
	})
	err = s.run(ctx, o.listen)
	cancel()
	wg.Wait()
	return errors.Join(err, r.Close())
}

func faithful(ctx context.Context, o options) error {
	suite, err := fidelity.Start(ctx, fidelity.Options{Dir: o.dir, Tmpfs: o.tmpfs})
	if err != nil {
		return err
	}
	s := newServer()
	s.handle("GET /report", func(*http.Request) (any, error) { return suite.Report(), nil })
	return errors.Join(s.run(ctx, o.listen), suite.Close())
}
