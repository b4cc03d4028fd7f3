package command

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	localv1 "diapause.dev/api/local/v1"
)

// recorder is an agent that records requests and gives prepared answers.
type recorder struct {
	localv1.UnimplementedAgentServer
	asked      chan any
	checkpoint []*localv1.CheckpointEvent
	restore    []*localv1.RestoreEvent
	list       *localv1.ListResponse
	verify     []*localv1.VerifyEvent
	sweep      []*localv1.SweepEvent
	stats      []*localv1.StatStoreEvent
	rotation   []*localv1.RotateKeysEvent
	status     *localv1.StatusResponse
	top        *localv1.TopResponse
	err        error // returned after the events
	hang       bool  // wait for the caller to go away, after the events
}

func play[E any](r *recorder, req any, s grpc.ServerStreamingServer[E], events []*E) error {
	r.asked <- req
	for _, e := range events {
		if err := s.Send(e); err != nil {
			return err
		}
	}
	if r.hang {
		<-s.Context().Done()
		return s.Context().Err()
	}
	return r.err
}

func (r *recorder) Checkpoint(q *localv1.CheckpointRequest,
	s grpc.ServerStreamingServer[localv1.CheckpointEvent],
) error {
	return play(r, q, s, r.checkpoint)
}

func (r *recorder) Restore(q *localv1.RestoreRequest, s grpc.ServerStreamingServer[localv1.RestoreEvent]) error {
	return play(r, q, s, r.restore)
}

func (r *recorder) Verify(q *localv1.VerifyRequest, s grpc.ServerStreamingServer[localv1.VerifyEvent]) error {
	return play(r, q, s, r.verify)
}

func (r *recorder) Sweep(q *localv1.SweepRequest, s grpc.ServerStreamingServer[localv1.SweepEvent]) error {
	return play(r, q, s, r.sweep)
}

func (r *recorder) StatStore(q *localv1.StatStoreRequest, s grpc.ServerStreamingServer[localv1.StatStoreEvent]) error {
	return play(r, q, s, r.stats)
}

func (r *recorder) RotateKeys(q *localv1.RotateKeysRequest,
	s grpc.ServerStreamingServer[localv1.RotateKeysEvent],
) error {
	return play(r, q, s, r.rotation)
}

func (r *recorder) CheckKeys(q *localv1.RotateKeysRequest,
	s grpc.ServerStreamingServer[localv1.RotateKeysEvent],
) error {
	return play(r, q, s, r.rotation)
}

func (r *recorder) List(_ context.Context, q *localv1.ListRequest) (*localv1.ListResponse, error) {
	r.asked <- q
	return r.list, r.err
}

func (r *recorder) Inspect(_ context.Context, q *localv1.InspectRequest) (*localv1.Snapshot, error) {
	r.asked <- q
	if q.Snapshot == "missing" {
		return nil, status.Error(codes.NotFound, "no such snapshot")
	}
	return sample(), r.err
}

func (r *recorder) Remove(_ context.Context, q *localv1.RemoveRequest) (*localv1.RemoveResponse, error) {
	r.asked <- q
	if q.Snapshot == "missing" {
		return nil, status.Errorf(codes.NotFound, "snapshot %s/%s does not exist", q.Namespace, q.Snapshot)
	}
	return &localv1.RemoveResponse{}, r.err
}

func (r *recorder) Status(context.Context, *localv1.StatusRequest) (*localv1.StatusResponse, error) {
	return r.status, r.err
}

func (r *recorder) Top(context.Context, *localv1.TopRequest) (*localv1.TopResponse, error) {
	return r.top, r.err
}

// sample is a snapshot with every field filled in.
func sample() *localv1.Snapshot {
	took := func(d time.Duration) *durationpb.Duration { return durationpb.New(d) }
	return &localv1.Snapshot{
		Namespace: "default", Name: "counter-1", Uid: "u-1", Created: timestamppb.New(time.Unix(1700000000, 0)),
		OriginPod: "counter", OriginNode: "node0", Containers: []string{"app", "side"},
		RawBytes: 256 << 20, StoredBytes: 128 << 20, Chunks: 1000, ZeroChunks: 24, Packs: 8, OnNode: true, Replicated: true,
		Facts: &localv1.Facts{
			Architecture: "amd64", RunscVersion: "v1", RunscDigest: "abcd", CpuFeatures: []string{"avx2", "sse4_2"},
			Platform: "systrap", Network: "sandbox", PageSize: 4096,
		},
		Files: []*localv1.ImageFile{
			{Name: "checkpoint.img", Size: 350 << 10, Chunks: 2},
			{Name: "pages.img", Size: 256 << 20, Chunks: 1022},
		},
		Timeline: []*localv1.Stage{
			{Name: "prepare", Took: took(20 * time.Millisecond)},
			{Name: "capture", Took: took(80500 * time.Microsecond)},
		},
		Parent: "default/counter-0", OverflowBytes: 1 << 20, Format: 1,
	}
}

// serve runs the recorder on a socket of its own and returns the socket's path.
func serve(t *testing.T, r *recorder) string {
	t.Helper()
	r.asked = make(chan any, 16)
	path := filepath.Join(t.TempDir(), "agent.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	localv1.RegisterAgentServer(s, r)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Errorf("serve: %v", err)
		}
	})
	return path
}

// outcome is the result of one run of the tool.
type outcome struct {
	code     int
	out, err string
}

func invoke(ctx context.Context, socket string, args ...string) outcome {
	var out, errOut bytes.Buffer
	argv := append([]string{"diapause", "--socket", socket}, args...)
	code := Run(ctx, argv, &out, &errOut)
	return outcome{code, out.String(), errOut.String()}
}
