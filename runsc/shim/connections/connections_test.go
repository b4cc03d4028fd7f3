package connections

import (
	"context"
	"errors"
	"strings"
	"testing"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/ttrpc"
)

// Create implements task.TaskService.
func (a *asking) Create(context.Context, *task.CreateTaskRequest) (*task.CreateTaskResponse, error) {
	return &task.CreateTaskResponse{}, nil
}

// TestDrop: the end of a container's connection ends no other one, whatever its first request was.
func TestDrop(t *testing.T) {
	a := &asking{}
	var set Set
	connect := a.serve(t, &set)
	large := &task.CreateTaskRequest{ // comes in several pieces
		ID: "large", Rootfs: []*types.Mount{{Options: []string{strings.Repeat("x", 16<<10)}}},
	}
	clients := map[string]task.TaskService{"large": connect(), "small": connect(), "other": connect()}
	if _, err := clients["large"].Create(t.Context(), large); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"small", "other"} {
		stats(t, clients[id], id)
	}
	for _, id := range []string{"large", "small"} {
		set.Drop(id)
		if _, err := clients[id].State(t.Context(), &task.StateRequest{ID: id}); !errors.Is(err, ttrpc.ErrClosed) {
			t.Errorf("container %s is answered: %v", id, err)
		}
	}
	stats(t, clients["other"], "other")
}

// TestContainerOf reads the id of a container from a message that is cut at any place, or is none.
func TestContainerOf(t *testing.T) {
	message := "\x00\x00\x00\x1e\x00\x00\x00\x01\x01\x00" + "\x0a\x04task" + "\x12\x05State" +
		"\x1a\x06\x0a\x02ab\x12\x00" + "\x20\x05"
	for end := range len(message) + 1 {
		want := ""
		if end >= strings.Index(message, "ab")+2 {
			want = "ab"
		}
		if got := containerOf([]byte(message[:end])); got != want {
			t.Errorf("of %d bytes: %q", end, got)
		}
	}
	for _, hostile := range []string{
		"\x1a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "\x1a\x7f\x0a\xff\xff\xff\xff\x0fx",
		"\x1a\x02\x12\x00", "\x08\x01", "\xff",
	} {
		if got := containerOf([]byte(message[:headSize] + hostile)); got != "" {
			t.Errorf("%q is for container %q", hostile, got)
		}
	}
}
