package gofer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"diapause.dev/runsc/sidecar"
)

// Handler decides what becomes of a sidecar. Its methods are called concurrently.
type Handler interface {
	// Checkpoint serves every direction that saves. If it returns no error, it has taken over the connection, and
	// welcomes the sidecar. It must not wait for the checkpoint.
	Checkpoint(o sidecar.Options, c *sidecar.Conn) error
	// Restore returns the source that a restore reads from, or why there is no such restore. It is called again when
	// a sidecar comes back.
	Restore(o sidecar.Options) (Source, error)
}

// Accepter accepts connections from sidecars. They must be SOCK_SEQPACKET, and the peer must be root.
type Accepter interface {
	AcceptUnix() (*net.UnixConn, error)
	Close() error
}

// Listener accepts sidecars.
type Listener struct {
	l   Accepter
	h   Handler
	log *slog.Logger

	turns turns // of all sessions

	mu       sync.Mutex
	sessions map[string]*session // restores, by request
	wg       sync.WaitGroup
}

// helloTime bounds how long a sidecar may take to introduce itself.
const helloTime = 5 * time.Second

// New returns a listener that accepts from l. Serve closes l.
func New(l Accepter, h Handler, log *slog.Logger) *Listener {
	return &Listener{l: l, h: h, log: log, turns: newTurns(), sessions: make(map[string]*session)}
}

// Serve accepts sidecars until ctx is done, and returns when everything that it started has ended. A restore that
// is still loading then does not fail: its sidecar waits for the next agent.
func (l *Listener) Serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { l.l.Close() })
	defer stop()
	defer l.wg.Wait()
	for {
		uc, err := l.l.AcceptUnix()
		if ctx.Err() != nil {
			if err == nil {
				uc.Close() // the sidecar turns to the next agent
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept sidecar: %w", err)
		}
		l.wg.Go(func() {
			if err := l.serve(ctx, sidecar.NewConn(uc)); err != nil {
				l.log.Warn("sidecar refused or lost", "error", err)
			}
		})
	}
}

// serve serves one sidecar, and sees to it that its connection is closed.
func (l *Listener) serve(ctx context.Context, c *sidecar.Conn) error {
	o, err := l.hello(c)
	if err != nil {
		c.Close()
		return err
	}
	if o.Direction.Restores() {
		defer c.Close()
		return l.restore(ctx, c, o)
	}
	if err := l.h.Checkpoint(o, c); err != nil {
		defer c.Close()
		return errors.Join(err, c.Welcome(err))
	}
	return nil
}

// hello waits until a sidecar has introduced itself.
func (l *Listener) hello(c *sidecar.Conn) (sidecar.Options, error) {
	if err := c.Unix().SetReadDeadline(time.Now().Add(helloTime)); err != nil {
		return sidecar.Options{}, err
	}
	var m sidecar.Message
	f, err := c.Receive(&m)
	if err != nil {
		return sidecar.Options{}, fmt.Errorf("wait for a sidecar's hello: %w", err)
	}
	if f != nil {
		f.Drop()
		return sidecar.Options{}, errors.Join(errOldSidecar, c.Welcome(errOldSidecar))
	}
	o, err := sidecar.ParseHello(&m)
	if err != nil {
		return o, err
	}
	return o, c.Unix().SetReadDeadline(time.Time{})
}

// errOldSidecar means that a sidecar has handed over its sentry's socket. Sidecars of earlier versions did. The sidecar
// of a pod that may save itself is as old as the pod.
var errOldSidecar = errors.New("the sidecar is of an earlier version of Diapause, and cannot save for this agent: " +
	"install the agent's own; a pod that may save itself must be created again")

// restore runs a session. A second connection for the same request waits until the first session has ended with
// all its writes. Two sessions must never write into one sandbox's memory.
func (l *Listener) restore(ctx context.Context, c *sidecar.Conn, o sidecar.Options) error {
	src, err := l.h.Restore(o)
	if err != nil {
		return errors.Join(err, c.Welcome(err))
	}
	s := newSession(c, o.Direction, src, l.turns, l.log.With("request", o.Request))
	ctx, s.leave = context.WithCancel(ctx)
	defer s.leave()
	l.mu.Lock()
	old := l.sessions[o.Request]
	l.sessions[o.Request] = s
	l.mu.Unlock()
	if old != nil {
		old.leave()
		<-old.ended
	}
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.sessions[o.Request] == s {
			delete(l.sessions, o.Request)
		}
		close(s.ended)
	}()
	return s.run(ctx)
}
