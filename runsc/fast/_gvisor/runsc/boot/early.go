package boot

import (
	"fmt"
	"sync"
	"sync/atomic"
	time2 "time"

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/devutil"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
	"gvisor.dev/gvisor/pkg/sentry/time"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/specutils"
)

// earlyLoad is the load of the kernel's state that goes on while containers are still to come.
type earlyLoad struct {
	k    *kernel.Kernel
	ctx  *containersContext
	done chan struct{} // closed when err is set
	err  error
}

// containersContext is the context of a load whose containers come later. The files of their file systems are values of
// it. It is a state.Awaiter.
type containersContext struct {
	context.Context
	once    sync.Once
	over    chan struct{} // closed when values or err is set
	values  context.Context
	err     error
	awaited atomic.Int64 // how long was waited, in nanoseconds
}

// end ends the wait for containers, with a context that has their files or with an error. Only the first call counts.
func (c *containersContext) end(values context.Context, err error) {
	c.once.Do(func() {
		c.values, c.err = values, err
		close(c.over)
	})
}

// Value implements context.Context.Value.
func (c *containersContext) Value(key any) any {
	switch key {
	case vfs.CtxRestoreFilesystemFDMap, pgalloc.CtxMemoryFileMap, devutil.CtxDevGoferClientProvider:
		if c.Await() != nil {
			return nil
		}
		return c.values.Value(key)
	}
	return c.Context.Value(key)
}

// Await implements state.Awaiter.Await.
func (c *containersContext) Await() error {
	select {
	case <-c.over:
	default:
		log.Infof("The load of the kernel's state waits for containers.")
		begin := time2.Now()
		<-c.over
		c.awaited.Add(int64(time2.Since(begin)))
	}
	return c.err
}

// Awaited returns for how long the load has waited.
func (c *containersContext) Awaited() time2.Duration { return time2.Duration(c.awaited.Load()) }

// loadEarly begins to load the kernel's state. It leaves that to restore if a sandbox uses a GPU or a TPU, the host's
// network or a profiler, all of which have to be prepared before.
func (r *restorer) loadEarly(l *Loader) error {
	if r.extractRootFsMode || l.root.conf.ProfileEnable || specutils.NVProxyEnabled(l.root.spec, l.root.conf) ||
		specutils.TPUProxyEnabled(l.root.spec, l.root.conf) {
		return nil
	}
	if n := l.root.conf.Network; n != config.NetworkSandbox && n != config.NetworkNone {
		return nil
	}
	k, err := r.newKernel(l)
	if err != nil {
		return err
	}
	// The filters have to be there before the state is read.
	if err := l.installSeccompFilters(); err != nil {
		return err
	}
	e := &earlyLoad{
		k:    k,
		ctx:  &containersContext{Context: k.SupervisorContext(), over: make(chan struct{})},
		done: make(chan struct{}),
	}
	clocks := time.NewCalibratedClocks(shouldEnableClockMonotonicRaw(l.root.spec, l.root.conf))
	timeline := r.timer.Fork("kernel load")
	r.early = e
	pgalloc.BeginPromises()
	go func() {
		defer close(e.done)
		e.err = k.LoadFrom(e.ctx, r.stateFile, r.asyncMFLoader, nil, l, clocks, &vfs.CompleteRestoreOptions{}, timeline)
	}()
	return nil
}

// newKernel returns the kernel that is restored into, and makes it unless its load has begun.
func (r *restorer) newKernel(l *Loader) (*kernel.Kernel, error) {
	if r.early != nil {
		return r.early.k, nil
	}
	p, err := createPlatform(l.root.conf, l.root.applicationCores, r.deviceFile, l.sandboxID, r.timer, &l.pinRing)
	if err != nil {
		return nil, fmt.Errorf("creating platform: %v", err)
	}
	k := &kernel.Kernel{Platform: p}
	k.SetMemoryFile(r.mainMF)
	return k, nil
}

// installFilters installs the system call filters, unless that was done for an early load.
func (r *restorer) installFilters(l *Loader) error {
	if r.early != nil {
		return nil
	}
	return l.installSeccompFilters()
}

// restoreAll restores the sandbox once all containers have come. If that fails, a load that has begun ends, too.
func (r *restorer) restoreAll(l *Loader) error {
	err := r.restore(l)
	if err != nil && r.early != nil {
		r.early.ctx.end(nil, fmt.Errorf("the restore has failed: %w", err))
	}
	return err
}

// load loads the kernel's state with a context that has the files of all containers, or waits for the load that has
// begun.
func (r *restorer) load(ctx context.Context, l *Loader, clocks time.Clocks) error {
	if r.early == nil {
		return l.k.LoadFrom(ctx, r.stateFile, r.asyncMFLoader, nil, l, clocks, &vfs.CompleteRestoreOptions{},
			r.timer.Fork("kernel load"))
	}
	r.early.ctx.end(ctx, pgalloc.EndPromises())
	<-r.early.done
	log.Infof("The load of the kernel's state has waited [%s] for containers.", r.early.ctx.Awaited())
	return r.early.err
}
