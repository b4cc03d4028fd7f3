package connections

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/types/known/anypb"
)

// asking is a task service that counts what it is asked, and answers with the number.
type asking struct {
	task.TaskService
	stats, states atomic.Int32
	refuses       atomic.Bool
}

func (a *asking) Stats(_ context.Context, r *task.StatsRequest) (*task.StatsResponse, error) {
	n := a.stats.Add(1)
	if a.refuses.Load() {
		return nil, errgrpc.ToGRPC(errdefs.ErrUnavailable)
	}
	return &task.StatsResponse{Stats: &anypb.Any{TypeUrl: r.ID, Value: []byte{byte(n)}}}, nil
}

// State answers with the id that it gets.
func (a *asking) State(_ context.Context, r *task.StateRequest) (*task.StateResponse, error) {
	a.states.Add(1)
	return &task.StateResponse{ID: r.ID}, nil
}

// serve serves a on connections that repeat answers, and returns a function that connects to it.
func (a *asking) serve(t *testing.T, set *Set) (connect func() task.TaskService) {
	t.Helper()
	server, err := ttrpc.NewServer(ttrpc.WithServerHandshaker(repeated{ttrpc.UnixSocketRequireSameUser(), set}))
	if err != nil {
		t.Fatal(err)
	}
	task.RegisterTaskService(server, a)
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(context.Background(), l)
	t.Cleanup(func() { server.Close() })
	return func() task.TaskService {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		client := ttrpc.NewClient(conn)
		t.Cleanup(func() { client.Close() })
		return task.NewTaskClient(client)
	}
}

// stats asks for the statistics of a container, and returns which answer it was.
func stats(t *testing.T, client task.TaskService, id string) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := client.Stats(ctx, &task.StatsRequest{ID: id})
	if err != nil {
		t.Fatal(err)
	}
	if r.Stats.TypeUrl != id {
		t.Fatalf("asked for container %q, got the statistics of %q", id, r.Stats.TypeUrl)
	}
	return int(r.Stats.Value[0])
}

// TestStanding: while the process saves power, a question for statistics is answered once by the service, and then by
// the connection, each container for itself. Before and after that, and all other questions, the service answers.
func TestStanding(t *testing.T) {
	var a asking
	var set Set
	connect := a.serve(t, &set)
	client := connect()
	got := []int{stats(t, client, "a"), stats(t, client, "a")}
	set.Repeat()
	for range 3 {
		got = append(got, stats(t, client, "a"), stats(t, client, "b"))
	}
	got = append(got, stats(t, connect(), "a"))
	large := strings.Repeat("x", 3<<10) // more than is read and written at once
	for _, id := range []string{"a", large + large, large} {
		if r, err := client.State(t.Context(), &task.StateRequest{ID: id}); err != nil || r.ID != id {
			t.Errorf("another question: %.20v, %v", r, err)
		}
	}
	got = append(got, stats(t, client, "b"))
	set.Stop()
	got = append(got, stats(t, client, "a"))
	set.Repeat()
	got = append(got, stats(t, client, "a"), stats(t, client, "a"))
	if want := []int{1, 2, 3, 4, 3, 4, 3, 4, 3, 4, 5, 6, 6}; !slices.Equal(got, want) {
		t.Errorf("answers %v, want %v", got, want)
	}
	if n := a.states.Load(); n != 3 {
		t.Errorf("the service got %d other questions, want 3", n)
	}
}

// TestStandingError: an error is not repeated.
func TestStandingError(t *testing.T) {
	var a asking
	var set Set
	client := a.serve(t, &set)()
	set.Repeat()
	a.refuses.Store(true)
	for range 2 {
		if _, err := client.Stats(t.Context(), &task.StatsRequest{ID: "a"}); !errdefs.IsUnavailable(errgrpc.ToNative(err)) {
			t.Errorf("error %v, want that it is unavailable", err)
		}
	}
	a.refuses.Store(false)
	if n := stats(t, client, "a"); n != 3 {
		t.Errorf("answer %d, want that of the third question", n)
	}
}

// TestStandingStale: an answer to a question from before the process was up is not kept when it saves power again.
func TestStandingStale(t *testing.T) {
	var s standingAnswers
	s.begin()
	_, period := s.to([]byte("q"))
	s.end()
	s.keep("q", []byte("old"), period)
	s.begin()
	s.keep("q", []byte("old"), period)
	answer, again := s.to([]byte("q"))
	if answer != nil || again == period {
		t.Errorf("answer %q of period %d, want none, and another period than %d", answer, again, period)
	}
	for i := range 10 * maxStanding {
		s.keep(strings.Repeat("q", i), nil, again)
	}
	if len(s.all) > maxStanding {
		t.Errorf("%d answers are kept, want at most %d", len(s.all), maxStanding)
	}
}

// TestStandingTogether: many ask at once over few connections, while the process is up for a moment now and then. Each
// gets the answer to its own question.
func TestStandingTogether(t *testing.T) {
	var a asking
	var set Set
	connect := a.serve(t, &set)
	set.Repeat()
	ids := []string{"a", "b", strings.Repeat("c", 5<<10)}
	var g sync.WaitGroup
	for range 2 {
		client := connect()
		for _, id := range ids {
			g.Go(func() {
				for i := range 300 {
					if i%50 == 49 {
						set.Stop()
						set.Repeat()
					}
					if r, err := client.State(t.Context(), &task.StateRequest{ID: id}); err != nil || r.ID != id {
						t.Errorf("state of %.10q: %.20v, %v", id, r, err)
					}
				}
			})
			g.Go(func() {
				for range 300 {
					r, err := client.Stats(t.Context(), &task.StatsRequest{ID: id})
					if err != nil || r.Stats.TypeUrl != id {
						t.Errorf("statistics of %.10q: %.20v, %v", id, r, err)
					}
				}
			})
		}
	}
	g.Wait()
}

// FuzzFraming: however a stream of messages is cut, the places between them are the same, and no message makes
// appendQuestion fail.
func FuzzFraming(f *testing.F) {
	question := append([]byte{0, 0, 0, byte(len(askStats) + 4), 0, 0, 0, 1, typeRequest, 0}, askStats...)
	f.Add(append(question, 0x1a, 0, 0x20, 1), uint8(3))
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 1, typeResponse, 0, 0, 0, 0, 1, 0, 0, 0, 1, typeResponse, 0, 0}, uint8(1))
	f.Fuzz(func(t *testing.T, stream []byte, cut uint8) {
		var whole, parts framing
		whole.pass(stream)
		for part := range slices.Chunk(stream, int(cut)+1) {
			parts.pass(part)
		}
		if whole.between() != parts.between() || whole.left != parts.left {
			t.Errorf("%v is not %v", parts, whole)
		}
		if !isMessage(stream) {
			return
		}
		isAnswer(stream)
		if key, ok := appendQuestion(nil, stream); ok && len(key) > len(stream)-headSize {
			t.Errorf("%q is longer than %q", key, stream)
		}
	})
}
