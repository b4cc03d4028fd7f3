package gofer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"diapause.dev/runsc/sidecar"
)

// Handler decides what becomes of a sidecar. Its methods are called concurrently.
type Handler interface {
	// Checkpoint serves every direction that saves. If it returns no error, it has taken over the sentry's socket
	// sock; the sidecar is then told so, and exits. It must not wait for the checkpoint.
	Checkpoint(o sidecar.Options, sock int) error
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

	mu       sync.Mutex
	sessions map[string]*session // restores, by request
	wg       sync.WaitGroup
}

// helloTime bounds how long a sidecar may take to introduce itself.
const helloTime = 5 * time.Second

// New returns a listener that accepts from l. Serve closes l.
func New(l Accepter, h Handler, log *slog.Logger) *Listener {
	return &Listener{l: l, h: h, log: log, sessions: make(map[string]*session)}
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
			c := sidecar.NewConn(uc)
			defer c.Close()
			if err := l.serve(ctx, c); err != nil {
				l.log.Warn("sidecar refused or lost", "error", err)
			}
		})
	}
}

// serve serves one sidecar.
func (l *Listener) serve(ctx context.Context, c *sidecar.Conn) error {
	if err := c.Unix().SetReadDeadline(time.Now().Add(helloTime)); err != nil {
		return err
	}
	var m sidecar.Message
	f, err := c.Receive(&m)
	if err != nil {
		return fmt.Errorf("wait for a sidecar's hello: %w", err)
	}
	defer func() {
		if f != nil {
			f.Close()
		}
	}()
	o, err := sidecar.ParseHello(&m)
	if err != nil {
		return err
	}
	if o.Direction.Restores() {
		return l.restore(ctx, c, o)
	}
	return l.welcome(c, o, l.checkpoint(o, f))
}

// checkpoint hands the sentry's socket to the handler.
func (l *Listener) checkpoint(o sidecar.Options, f *os.File) error {
	if f == nil {
		return errors.New("no socket came with the hello")
	}
	sock, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("duplicate the sentry's socket: %w", err)
	}
	if err := l.h.Checkpoint(o, sock); err != nil {
		unix.Close(sock)
		return err
	}
	return nil
}

// welcome tells the sidecar whether the agent takes its request. It returns the refusal.
func (l *Listener) welcome(c *sidecar.Conn, o sidecar.Options, refusal error) error {
	m := sidecar.Message{Kind: sidecar.KindWelcome}
	if refusal != nil {
		m.Text = refusal.Error()
	}
	return errors.Join(refusal, c.Send(&m, -1))
}

// restore runs a session. A second connection for the same request waits until the first session has ended with
// all its writes. Two sessions must never write into one sandbox's memory.
func (l *Listener) restore(ctx context.Context, c *sidecar.Conn, o sidecar.Options) error {
	src, err := l.h.Restore(o)
	if err != nil {
		return l.welcome(c, o, err)
	}
	s := newSession(c, src, l.log.With("request", o.Request))
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
