package local

import (
	"google.golang.org/grpc"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/storage"
)

// StatStore implements localv1.AgentServer. It reports the spool even if no store can be reached.
func (s *service) StatStore(req *localv1.StatStoreRequest,
	stream grpc.ServerStreamingServer[localv1.StatStoreEvent],
) error {
	ctx, cancel := s.Life.Bound(stream.Context())
	defer cancel()
	out := newEvents(stream)
	defer out.flush()
	sum := func(st *storage.Store) error {
		at := st.Backend().Location()
		r, err := st.Stat(ctx, storage.StatOptions{Namespace: req.Namespace, Progress: func(done, total int64) {
			out.progress(at, &localv1.StatStoreEvent{Event: &localv1.StatStoreEvent_Progress{
				Progress: &localv1.Progress{Stage: at, Done: done, Total: total},
			}})
		}})
		if err != nil {
			return toStatus(err)
		}
		out.send(&localv1.StatStoreEvent{Event: &localv1.StatStoreEvent_Result{Result: storeStats(at, st.Identity(),
			st == s.Stores.Spool(), r)}})
		return nil
	}
	if err := sum(s.Stores.Spool()); err != nil {
		return err
	}
	far, err := s.Stores.Open(ctx)
	for _, st := range far {
		if err := sum(st); err != nil {
			return err
		}
	}
	return toStatus(err)
}

func storeStats(location, identity string, spool bool, r storage.StoreStats) *localv1.StoreStats {
	return &localv1.StoreStats{
		Location: location, Spool: spool, Identity: identity,
		Snapshots: int64(r.Snapshots), Damaged: int64(r.Damaged), RawBytes: r.RawBytes, NamedBytes: r.NamedBytes,
		ManifestBytes: r.ManifestBytes,
		Packs:         int64(r.Packs), PackBytes: r.PackBytes, UnreferencedPacks: int64(r.Unreferenced),
		UnreferencedBytes: r.UnrefBytes,
		MissingPacks:      int64(r.Missing), DedupRatio: r.DedupRatio(),
	}
}
