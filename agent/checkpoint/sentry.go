package checkpoint

import (
	"time"

	"diapause.dev/agent/snapshots"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/capture"
	"diapause.dev/runsc/sidecar"
)

// sentry is the sidecar's connection of a sentry that has started a save and waits for its gofer.
type sentry struct{ conn *sidecar.Conn }

// take returns the connection and gives up its ownership.
func (s *sentry) take() *sidecar.Conn {
	conn := s.conn
	s.conn = nil
	return conn
}

// refuse makes the save fail if nobody has taken the connection. The sandbox runs on, and the workload gets err. A save
// of files alone fails as soon as refuse hangs up. Whatever the sandbox does, refuse returns within that time.
func (s *sentry) refuse(scope snapshot.Scope, err error, within time.Duration) {
	if s.conn == nil {
		return
	}
	if scope == snapshot.RootfsOnly {
		s.take().Close()
		return
	}
	refusal := capture.New(capture.Options{
		Scope: scope, Pages: capture.Refuse{Err: err}, Chunk: snapshots.ChunkSize,
	})
	defer time.AfterFunc(within, refusal.Abort).Stop()
	refusal.Serve(s.take())
}
