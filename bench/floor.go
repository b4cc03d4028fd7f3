package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"diapause.dev/agent/rootsocket"
	"diapause.dev/agent/snapshots"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/capture"
	"diapause.dev/runsc/gofer"
	"diapause.dev/runsc/sidecar"
)

// floorSocket is where sidecars of the mode floor call.
const floorSocket = runDir + "/gofer.sock"

// floor is a checkpoint gofer that acknowledges every write of pages without reading it. All else
// is as in the agent. It implements gofer.Handler.
type floor struct {
	cancel context.CancelFunc
	ended  chan error // of the listener
	serves sync.WaitGroup

	mu      sync.Mutex
	capture *capture.Capture // of the checkpoint that is expected, or under way
	request string
}

func startFloor(ctx context.Context) (*floor, error) {
	l, err := rootsocket.Listen("unixpacket", floorSocket, slog.Default())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	f := &floor{cancel: cancel, ended: make(chan error, 1)}
	go func() { f.ended <- gofer.New(l, f, slog.Default()).Serve(ctx) }()
	return f, nil
}

func (f *floor) close() error {
	f.cancel()
	err := <-f.ended
	f.serves.Wait()
	return err
}

// expect returns the image path for a checkpoint by this gofer. forget removes it.
func (f *floor) expect(request string) (dir string, forget func(), err error) {
	dir = filepath.Join(runDir, "requests", request)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, err
	}
	forget = func() { os.RemoveAll(dir) } // what stays is on a tmpfs that ends with the bed
	o := sidecar.Options{Socket: floorSocket, Request: request, Token: request, Direction: sidecar.Checkpoint}
	if err := o.Write(dir); err != nil {
		forget()
		return "", nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.request, f.capture = request, capture.New(capture.Options{
		Scope: snapshot.WholePod, Pages: capture.Discard{}, Chunk: snapshots.ChunkSize,
	})
	return dir, forget, nil
}

// complete returns an error unless the sentry has saved all of the image.
func (f *floor) complete(ctx context.Context) error {
	f.mu.Lock()
	c := f.capture
	f.mu.Unlock()
	_, err := c.Image(ctx)
	return err
}

// Checkpoint implements gofer.Handler.
func (f *floor) Checkpoint(o sidecar.Options, conn *sidecar.Conn) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.capture == nil || o.Request != f.request {
		return fmt.Errorf("request %.40q is not expected", o.Request)
	}
	c := f.capture
	f.serves.Go(func() {
		_ = conn.Welcome(nil) // if that fails the sidecar is gone, and Serve ends
		c.Serve(conn)
	})
	return nil
}

// Restore implements gofer.Handler.
func (f *floor) Restore(sidecar.Options) (gofer.Source, error) {
	return nil, fmt.Errorf("nothing is kept here: %w", errors.ErrUnsupported)
}
