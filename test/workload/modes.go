package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"diapause.dev/test/workload/answers"
	"diapause.dev/test/workload/internal/fidelity"
	"diapause.dev/test/workload/internal/memory"
	"diapause.dev/test/workload/internal/order"
	"diapause.dev/test/workload/internal/work"
)

// seed is that of the memory of the mode serve.
const seed = 0x64696170

// maxRate bounds what a writer may be asked for, in MiB per second.
const maxRate = 1 << 20

func serve(ctx context.Context, o options) error {
	m, err := memory.New(o.mib<<20, memory.Content{Seed: seed, Random: memory.Half})
	if err != nil {
		return err
	}
	w := writer{job: job{ctx: ctx}, memory: m}
	l := looper{job: job{ctx: ctx}, memory: m}
	k := worker{job: job{ctx: ctx}, memory: m}
	s := newServer()
	bound := new(own)
	s.handle("POST /own", bound.open)
	s.handle("POST /say", bound.say)
	s.handle("GET /verify", func(*http.Request) (any, error) { return m.Verify(), nil })
	s.handle("POST /dirty", w.dirty)
	s.handle("GET /touch", func(r *http.Request) (any, error) { return touch(m, r) })
	s.handle("POST /take", new(hoard).take)
	files := new(held)
	s.handle("POST /files", files.open)
	s.handle("GET /files", files.verify)
	s.handle("POST /tun", openTun)
	s.handle("POST /loop", l.turn)
	s.handle("POST /work", k.set)
	s.handle("GET /work", func(r *http.Request) (any, error) { return k.meter.Report(r.FormValue("reset") == "1"), nil })
	s.handle("GET /loop", func(r *http.Request) (any, error) { return l.loop.Report(r.FormValue("reset") == "1"), nil })
	err = s.run(ctx, o.listen)
	w.stop()
	l.stop()
	k.stop()
	return errors.Join(err, m.Close())
}

// touch reads pages in as many pieces of equal size as are asked for, which lie evenly all over the memory.
func touch(m *memory.Memory, r *http.Request) (t answers.Touched, err error) {
	mib, err := strconv.Atoi(r.FormValue("mib"))
	if err != nil || mib < 0 || mib > maxMiB {
		return t, fmt.Errorf("mib=%.40q: want 0 to %d", r.FormValue("mib"), maxMiB)
	}
	pieces := 1
	if text := r.FormValue("pieces"); text != "" {
		if pieces, err = strconv.Atoi(text); err != nil || pieces < 1 || pieces > m.Pages() {
			return t, fmt.Errorf("pieces=%.40q: want 1 to %d", text, m.Pages())
		}
	}
	share := m.Pages() / pieces
	size := mib << 20 / memory.PageSize / pieces
	for i := range pieces {
		sum, err := m.Touch(i*share+max(0, share-size)/2, size)
		if err != nil {
			return t, err
		}
		t.Pages += size
		t.Sum ^= sum
	}
	return t, nil
}

// openTun makes a TUN device, which lasts as long as this process: gVisor cannot save it.
func openTun(*http.Request) (any, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	r, err := unix.NewIfreq("tun0")
	if err != nil {
		return nil, err
	}
	r.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, r); err != nil {
		return nil, errors.Join(fmt.Errorf("make a TUN device: %w", err), unix.Close(fd))
	}
	return nil, nil
}

// hoard is memory beside that which is checked.
type hoard struct {
	mu   sync.Mutex
	data [][]byte
}

// take keeps so many MiB more.
func (h *hoard) take(r *http.Request) (any, error) {
	mib, err := strconv.Atoi(r.FormValue("mib"))
	if err != nil || mib < 0 || mib > maxMiB {
		return nil, fmt.Errorf("mib=%.40q: want 0 to %d", r.FormValue("mib"), maxMiB)
	}
	more := bytes.Repeat([]byte{1}, mib<<20)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.data = append(h.data, more)
	return map[string]int{"mib": mib}, nil
}

// looper keeps at most one loop over the memory going.
type looper struct {
	job
	memory *memory.Memory
	loop   memory.Loop
}

// turn starts or stops the loop.
func (l *looper) turn(r *http.Request) (any, error) {
	on, err := strconv.ParseBool(r.FormValue("on"))
	if err != nil {
		return nil, fmt.Errorf("on=%.40q: want true or false", r.FormValue("on"))
	}
	l.stop()
	if on {
		l.start(func(ctx context.Context) { l.loop.Run(ctx, l.memory) })
	}
	return map[string]bool{"on": on}, nil
}

// maxThreads bounds the threads that a worker may be asked for.
const maxThreads = 256

// worker keeps at most one kind of work going.
type worker struct {
	job
	memory *memory.Memory
	meter  work.Meter
}

// set sets the kind of work and the number of threads; 0 stops it.
func (w *worker) set(r *http.Request) (any, error) {
	kind, text := r.FormValue("kind"), r.FormValue("threads")
	threads, err := strconv.Atoi(text)
	if err != nil || threads < 0 || threads > maxThreads {
		return nil, fmt.Errorf("threads=%.40q: want 0 to %d", text, maxThreads)
	}
	w.stop()
	if threads == 0 {
		return map[string]int{"threads": 0}, nil
	}
	switch kind {
	case "memory":
		w.start(func(ctx context.Context) { w.meter.Run(ctx, threads, w.read) })
	case "syscalls":
		piece, end, err := work.Syscalls()
		if err != nil {
			return nil, err
		}
		w.start(func(ctx context.Context) {
			defer end()
			w.meter.Run(ctx, threads, piece)
		})
	default:
		return nil, fmt.Errorf("kind=%.40q: want memory or syscalls", kind)
	}
	return map[string]int{"threads": threads}, nil
}

// read is a piece of work: a page of the memory.
func (w *worker) read(i int) { w.memory.ReadPage(i % w.memory.Pages()) }

// writer keeps at most one writer of the memory going.
type writer struct {
	job
	memory *memory.Memory
}

// dirty sets the writer's rate; 0 stops it.
func (w *writer) dirty(r *http.Request) (any, error) {
	rate, err := strconv.ParseFloat(r.FormValue("mib_per_s"), 64)
	if err != nil || !(rate >= 0 && rate <= maxRate) {
		return nil, fmt.Errorf("mib_per_s=%.40q: want 0 to %d", r.FormValue("mib_per_s"), maxRate)
	}
	w.stop()
	if rate > 0 {
		w.start(func(ctx context.Context) { w.memory.Dirty(ctx, rate) })
	}
	return map[string]float64{"mib_per_s": rate}, nil
}

// job is something that goes on beside the answers, at most once at a time.
type job struct {
	ctx context.Context // of the program

	mu     sync.Mutex
	cancel context.CancelFunc // nil: none goes
	done   chan struct{}
}

// start calls f, whose context ends with stop.
func (j *job) start(f func(context.Context)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.cancel != nil {
		return // another request was first
	}
	ctx, cancel := context.WithCancel(j.ctx)
	done := make(chan struct{})
	j.cancel, j.done = cancel, done
	go func() {
		defer close(done)
		f(ctx)
	}()
}

// stop ends what start has begun, if anything, and waits for its end.
func (j *job) stop() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.cancel != nil {
		j.cancel()
		<-j.done
		j.cancel = nil
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
