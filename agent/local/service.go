package local

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"diapause.dev/agent/checkpoint"
	"diapause.dev/agent/errkind"
	"diapause.dev/agent/newpods"
	"diapause.dev/agent/snapshots"
	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/api/snapshot"
	"diapause.dev/cri"
	"diapause.dev/cri/plan"
	"diapause.dev/runsc/kubelet"
	"diapause.dev/storage"
)

// service implements localv1.AgentServer.
type service struct {
	localv1.UnimplementedAgentServer
	Config
	kernel  func() (string, error) // kernelFacts, read once
	kubelet kubelet.Finder
}

// Checkpoint implements localv1.AgentServer.
func (s *service) Checkpoint(req *localv1.CheckpointRequest,
	stream grpc.ServerStreamingServer[localv1.CheckpointEvent],
) error {
	ctx, cancel := s.Life.Bound(stream.Context())
	defer cancel()
	out := newEvents(stream)
	defer out.flush()
	scope := snapshot.WholePod
	if req.RootfsOnly {
		scope = snapshot.RootfsOnly
	}
	f, err := s.Checkpoints.Checkpoint(ctx, s.Life.Context(), checkpoint.Options{
		Scope:  scope,
		Target: req.Target, Name: req.Name, Stop: req.After == localv1.AfterMode_AFTER_MODE_STOP,
		NoWait: req.NoWaitReplicated,
		Progress: func(stage string, done, total int64) {
			out.progress(stage, &localv1.CheckpointEvent{Event: &localv1.CheckpointEvent_Progress{
				Progress: &localv1.Progress{Stage: stage, Done: done, Total: total},
			}})
		},
		Accepted: func(id string) {
			out.send(&localv1.CheckpointEvent{Event: &localv1.CheckpointEvent_Accepted{Accepted: id}})
		},
		Spooled: func(f *snapshots.Found, warning string) {
			if warning != "" {
				out.send(&localv1.CheckpointEvent{Event: &localv1.CheckpointEvent_Warning{Warning: warning}})
			}
			out.send(&localv1.CheckpointEvent{Event: &localv1.CheckpointEvent_Spooled{Spooled: foundProto(f)}})
		},
	})
	if err == nil && !req.NoWaitReplicated {
		err = s.confirmed(ctx, f.Manifest.Meta)
	}
	if err != nil {
		return toStatus(err)
	}
	out.send(&localv1.CheckpointEvent{Event: &localv1.CheckpointEvent_Done{Done: foundProto(f)}})
	return nil
}

// confirmTime is how long an answer waits for the cluster to confirm a snapshot that is in its store. The snapshot is
// usable on this node all the same.
const confirmTime = 30 * time.Second

// confirmed waits until the cluster, if the node belongs to one, has confirmed a snapshot: who hears that it is made
// may delete its pod.
func (s *service) confirmed(ctx context.Context, m snapshot.Meta) error {
	if s.Cluster == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, confirmTime)
	defer cancel()
	pod := snapshot.PodRef{Namespace: m.Key.Namespace, Name: m.Origin.Pod, UID: m.Origin.PodUID}
	if err := s.Cluster.Confirmed(ctx, pod, m.Key); err != nil {
		return fmt.Errorf("snapshot %s was made, and is restorable on this node only: %w", m.Key, err)
	}
	return nil
}

// Restore implements localv1.AgentServer.
func (s *service) Restore(req *localv1.RestoreRequest, stream grpc.ServerStreamingServer[localv1.RestoreEvent]) error {
	ctx, cancel := s.Life.Bound(stream.Context())
	defer cancel()
	out := newEvents(stream)
	defer out.flush()
	allow, err := plan.ParseAllowances(req.Allow)
	if err != nil {
		return toStatus(fmt.Errorf("%w: %w", errkind.ErrInvalid, err))
	}
	return toStatus(s.NewPods.Start(ctx, newpods.Options{
		Key: parseKey(req.Snapshot, req.Namespace), Name: req.Name, Count: int(req.Count), Allow: allow,
		Progress: func(stage string, done, total int64) {
			out.progress(stage, &localv1.RestoreEvent{Event: &localv1.RestoreEvent_Progress{
				Progress: &localv1.Progress{Stage: stage, Done: done, Total: total},
			}})
		},
		Restored: func(p *cri.Pod, took time.Duration) {
			out.send(&localv1.RestoreEvent{Event: &localv1.RestoreEvent_Restored{Restored: restoredPod(p, took)}})
		},
		Loaded: func(p *cri.Pod, took time.Duration) {
			out.send(&localv1.RestoreEvent{Event: &localv1.RestoreEvent_Loaded{Loaded: restoredPod(p, took)}})
		},
	}))
}

func restoredPod(p *cri.Pod, took time.Duration) *localv1.RestoredPod {
	return &localv1.RestoredPod{Id: p.ID, Name: p.Name, Namespace: p.Namespace, Ip: p.IP, Took: durationpb.New(took)}
}

// List implements localv1.AgentServer.
func (s *service) List(ctx context.Context, req *localv1.ListRequest) (*localv1.ListResponse, error) {
	found, damaged, err := s.Catalog.List(ctx, req.Namespace)
	resp := &localv1.ListResponse{Damaged: damaged}
	if err != nil {
		resp.Unreachable = strings.Split(err.Error(), "\n") // one for each store
	}
	for _, f := range found {
		resp.Snapshots = append(resp.Snapshots, foundProto(f))
	}
	return resp, nil
}

// Inspect implements localv1.AgentServer.
func (s *service) Inspect(ctx context.Context, req *localv1.InspectRequest) (*localv1.Snapshot, error) {
	f, err := s.Catalog.Find(ctx, parseKey(req.Snapshot, req.Namespace))
	if err != nil {
		return nil, toStatus(err)
	}
	return foundProto(f), nil
}

// Remove implements localv1.AgentServer.
func (s *service) Remove(ctx context.Context, req *localv1.RemoveRequest) (*localv1.RemoveResponse, error) {
	id := snapshots.ID{Key: parseKey(req.Snapshot, req.Namespace)}
	if err := s.Catalog.Remove(ctx, snapshots.Removal{ID: id, From: snapshots.FromEverywhere}); err != nil {
		return nil, toStatus(err)
	}
	return &localv1.RemoveResponse{}, nil
}

// Verify implements localv1.AgentServer.
func (s *service) Verify(req *localv1.VerifyRequest, stream grpc.ServerStreamingServer[localv1.VerifyEvent]) error {
	ctx, cancel := s.Life.Bound(stream.Context())
	defer cancel()
	out := newEvents(stream)
	defer out.flush()
	options := storage.VerifyOptions{
		ReadData: req.ReadData,
		Subset:   storage.Subset{Part: int(req.Part), Of: int(req.Parts)},
	}
	if err := options.Subset.Validate(); err != nil {
		return toStatus(fmt.Errorf("%w: %w", errkind.ErrInvalid, err))
	}
	keys, damaged, err := s.toVerify(ctx, req)
	if err != nil {
		return toStatus(err)
	}
	for _, d := range damaged {
		out.send(verifyResult(&localv1.VerifyResult{Problems: []string{d}}))
	}
	for _, k := range keys {
		options.Progress = func(done, total int64) {
			out.progress(k.String(), &localv1.VerifyEvent{Event: &localv1.VerifyEvent_Progress{
				Progress: &localv1.Progress{Stage: k.String(), Done: done, Total: total},
			}})
		}
		v, err := s.Catalog.Verify(ctx, k, options, req.Repair)
		if err != nil {
			return toStatus(err)
		}
		out.send(verifyResult(&localv1.VerifyResult{
			Namespace: k.Namespace, Snapshot: k.Name, Ok: v.Err == nil, Problems: problems(v.Err), Repaired: v.Repaired,
			AlsoHurt: v.AlsoHurt, Signatures: signaturesProto(v.Signatures),
		}))
	}
	return nil
}

func verifyResult(r *localv1.VerifyResult) *localv1.VerifyEvent {
	return &localv1.VerifyEvent{Event: &localv1.VerifyEvent_Result{Result: r}}
}

// toVerify returns the snapshots that a request asks to verify, and the problems of those that cannot be listed.
func (s *service) toVerify(ctx context.Context,
	req *localv1.VerifyRequest,
) (keys []snapshot.Key, damaged []string, err error) {
	if req.Snapshot != "" {
		return []snapshot.Key{parseKey(req.Snapshot, req.Namespace)}, nil, nil
	}
	found, damaged, err := s.Catalog.List(ctx, req.Namespace)
	for _, f := range found {
		keys = append(keys, f.Manifest.Meta.Key)
	}
	return keys, damaged, err
}

// maxSwept bounds how many objects the result of a sweep names, so that it fits in a message.
const maxSwept = 10_000

// Sweep implements localv1.AgentServer.
func (s *service) Sweep(req *localv1.SweepRequest, stream grpc.ServerStreamingServer[localv1.SweepEvent]) error {
	ctx, cancel := s.Life.Bound(stream.Context())
	defer cancel()
	out := newEvents(stream)
	defer out.flush()
	grace := snapshots.SweepGrace
	if req.Grace != nil {
		grace = max(req.Grace.AsDuration(), 1) // 0 would mean the store's default
	}
	far, err := s.Stores.Open(ctx)
	if err != nil {
		return toStatus(err)
	}
	sum := &localv1.SweepResult{}
	for _, st := range append([]*storage.Store{s.Stores.Spool()}, far...) {
		r, err := st.Sweep(ctx, storage.SweepOptions{Grace: grace, DryRun: req.DryRun, Found: func(o storage.ObjectInfo) {
			if len(sum.Objects) < maxSwept {
				sum.Objects = append(sum.Objects, st.Backend().Location()+" "+o.Name)
			}
		}, Progress: func(done, total int64) {
			stage := st.Backend().Location()
			out.progress(stage, &localv1.SweepEvent{Event: &localv1.SweepEvent_Progress{
				Progress: &localv1.Progress{Stage: stage, Done: done, Total: total},
			}})
		}})
		if err != nil {
			return toStatus(err)
		}
		addSweep(sum, r)
	}
	out.send(&localv1.SweepEvent{Event: &localv1.SweepEvent_Result{Result: sum}})
	return nil
}
