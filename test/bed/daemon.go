package bed

import "context"

// Daemon is a server of the bed or of a node, which can be started again. Its
// methods are for one goroutine at a time.
type Daemon struct {
	*Process // the one started last
	space    space
	name     string // of the program and of its log
	args     []string
	up       func(context.Context) error // says what it waits for; nil if it is up
}

// Start starts the daemon, which must not be running, and returns when it is
// ready. If it does not come up it is ended.
func (d *Daemon) Start(ctx context.Context) error {
	p, err := d.space.startProcess(d.name, d.name, d.args...)
	if err != nil {
		return err
	}
	d.Process = p
	if err := p.ready(ctx, d.up); err != nil {
		p.Kill()
		return err
	}
	return nil
}

// Restart ends the daemon by SIGTERM and starts it again. Pods live on. It
// returns when the daemon is ready again.
func (d *Daemon) Restart(ctx context.Context) error {
	if err := d.Stop(ctx); err != nil {
		return err
	}
	return d.Start(ctx)
}

// Supervise starts the daemon again when it ends, once, as an init system would. The function that
// it returns waits for that, or for the end of ctx; until then nobody else starts or stops the daemon.
func (d *Daemon) Supervise(ctx context.Context) (wait func() error) {
	started := make(chan error, 1)
	ended := d.Done()
	go func() {
		select {
		case <-ended:
			started <- d.Start(ctx)
		case <-ctx.Done():
			started <- ctx.Err()
		}
	}()
	return func() error { return <-started }
}
