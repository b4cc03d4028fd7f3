package local

import (
	"fmt"

	"google.golang.org/grpc"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/storage"
)

// RotateKeys implements localv1.AgentServer. It rotates the spool's keys even if no store can be reached.
func (s *service) RotateKeys(req *localv1.RotateKeysRequest,
	stream grpc.ServerStreamingServer[localv1.RotateKeysEvent],
) error {
	return s.rewrap("rotate keys", false, req, stream)
}

// CheckKeys implements localv1.AgentServer. It checks the spool's keys even if no store can be reached.
func (s *service) CheckKeys(req *localv1.RotateKeysRequest,
	stream grpc.ServerStreamingServer[localv1.RotateKeysEvent],
) error {
	return s.rewrap("check keys", true, req, stream)
}

// rewrap wraps the data keys of the spool and of all stores anew, or only unwraps them.
func (s *service) rewrap(what string, dryRun bool, req *localv1.RotateKeysRequest,
	stream grpc.ServerStreamingServer[localv1.RotateKeysEvent],
) error {
	if !s.Stores.Encrypted() {
		return toStatus(fmt.Errorf("%w: this agent has no keys, see its flag --encryption-keys", storage.ErrKey))
	}
	ctx, cancel := s.Life.Bound(stream.Context())
	defer cancel()
	out := newEvents(stream)
	defer out.flush()
	rotate := func(st *storage.Store) error {
		at := st.Backend().Location()
		o := storage.RewrapOptions{Namespace: req.Namespace, DryRun: dryRun, Progress: func(done, total int64) {
			out.progress(at, &localv1.RotateKeysEvent{Event: &localv1.RotateKeysEvent_Progress{
				Progress: &localv1.Progress{Stage: at, Done: done, Total: total},
			}})
		}}
		r, err := st.Rewrap(ctx, o)
		if err != nil {
			return toStatus(fmt.Errorf("%s in %s, %d of %d done: %w", what, at, r.Rewrapped, r.Keys, err))
		}
		s.Logger.Info(what, "store", at, "namespace", req.Namespace, "keys", r.Keys, "rewrapped", r.Rewrapped,
			"denied", r.Denied)
		out.send(&localv1.RotateKeysEvent{Event: &localv1.RotateKeysEvent_Result{Result: &localv1.RotateKeysResult{
			Location: at, Spool: st == s.Stores.Spool(), Keys: int64(r.Keys), Rewrapped: int64(r.Rewrapped),
			Denied: int64(r.Denied),
		}}})
		return nil
	}
	if err := rotate(s.Stores.Spool()); err != nil {
		return err
	}
	far, err := s.Stores.Everywhere(ctx)
	for _, st := range far {
		if err := rotate(st); err != nil {
			return err
		}
	}
	return toStatus(err)
}
