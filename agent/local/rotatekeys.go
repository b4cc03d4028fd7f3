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
	if !s.Stores.Encrypted() {
		return toStatus(fmt.Errorf("%w: this agent has no keys, see its flag --encryption-keys", storage.ErrKey))
	}
	ctx, cancel := s.Life.Bound(stream.Context())
	defer cancel()
	out := newEvents(stream)
	defer out.flush()
	rotate := func(st *storage.Store) error {
		at := st.Backend().Location()
		r, err := st.Rewrap(ctx, storage.RewrapOptions{Namespace: req.Namespace, Progress: func(done, total int64) {
			out.progress(at, &localv1.RotateKeysEvent{Event: &localv1.RotateKeysEvent_Progress{
				Progress: &localv1.Progress{Stage: at, Done: done, Total: total},
			}})
		}})
		if err != nil {
			return toStatus(fmt.Errorf("rotate keys in %s, %d of %d done: %w", at, r.Rewrapped, r.Keys, err))
		}
		s.Logger.Info("keys rotated", "store", at, "namespace", req.Namespace, "keys", r.Keys, "rewrapped", r.Rewrapped)
		out.send(&localv1.RotateKeysEvent{Event: &localv1.RotateKeysEvent_Result{Result: &localv1.RotateKeysResult{
			Location: at, Spool: st == s.Stores.Spool(), Keys: int64(r.Keys), Rewrapped: int64(r.Rewrapped),
		}}})
		return nil
	}
	if err := rotate(s.Stores.Spool()); err != nil {
		return err
	}
	far, err := s.Stores.Open(ctx)
	for _, st := range far {
		if err := rotate(st); err != nil {
			return err
		}
	}
	return toStatus(err)
}
