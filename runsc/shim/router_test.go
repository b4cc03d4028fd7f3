package shim

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/containerd/v2/pkg/protobuf/types"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"gvisor.dev/gvisor/pkg/shim/v1/extension"
)

// several is gVisor's task service for several containers.
type several struct {
	extension.TaskServiceExt
	all map[string]bool
}

func (s several) Create(_ context.Context, r *task.CreateTaskRequest) (*task.CreateTaskResponse, error) {
	if r.Stdin == "fails" {
		return nil, errors.New("it fails")
	}
	s.all[r.ID] = true
	return &task.CreateTaskResponse{}, nil
}

func (s several) Delete(_ context.Context, r *task.DeleteRequest) (*task.DeleteResponse, error) {
	if !s.all[r.ID] {
		return nil, errgrpc.ToGRPC(errdefs.ErrNotFound) // as gVisor does
	}
	if r.ExecID == "" {
		delete(s.all, r.ID)
	}
	return &task.DeleteResponse{}, nil
}

func (several) Start(context.Context, *task.StartRequest) (*task.StartResponse, error) {
	return nil, errors.New("it fails")
}

func (several) State(context.Context, *task.StateRequest) (*task.StateResponse, error) {
	return nil, errgrpc.ToGRPC(errdefs.ErrNotFound)
}

func (s several) Kill(_ context.Context, r *task.KillRequest) (*types.Empty, error) {
	if !s.all[r.ID] {
		return nil, errgrpc.ToGRPC(errdefs.ErrNotFound) // as gVisor does
	}
	return &types.Empty{}, nil
}

// TestRouter: a pod has one process, which ends with the last container, whichever that is.
func TestRouter(t *testing.T) {
	x := newRouterTest(t)
	x.create("sandbox", "sandbox", "sandbox", "")
	x.create("init", "container", "sandbox", "")
	x.create("app", "container", "sandbox", "")
	if a, b := x.router.of("init"), x.router.of("app"); a != b || a != x.router.of("sandbox") {
		t.Error("the containers of a pod have several services")
	}
	x.serves(true)
	x.remove("init", "exec")
	x.remove("init", "")
	x.serves(true)
	x.remove("sandbox", "")
	x.serves(true)
	x.remove("app", "")
	x.serves(false)
}

// TestRouterForgets: what was not created, or is gone already, does not keep the process.
func TestRouterForgets(t *testing.T) {
	x := newRouterTest(t)
	x.create("sandbox", "sandbox", "sandbox", "")
	if err := x.tryCreate("app", "container", "sandbox", "fails"); err == nil {
		t.Error("it is created")
	}
	x.create("app", "container", "sandbox", "")
	if err := x.tryCreate("app", "container", "sandbox", ""); !errdefs.IsAlreadyExists(err) {
		t.Errorf("created twice: %v", err)
	}
	if err := x.tryCreate("other", "container", "other", ""); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("a container of another pod: %v", err)
	}
	delete(x.gvisor.all, "app")
	if _, err := x.router.Delete(t.Context(), &task.DeleteRequest{ID: "app"}); !errdefs.IsNotFound(errgrpc.ToNative(err)) {
		t.Error(err)
	}
	if _, known := x.router.pod.c.roster.signalled("app", 0); known || x.router.size() != 1 {
		t.Errorf("a container that is gone is still known: %v, of %d", known, x.router.size())
	}
	x.create("forgotten", "container", "sandbox", "")
	if err := os.RemoveAll(filepath.Join(x.dir, "forgotten")); err != nil {
		t.Fatal(err)
	}
	x.router.removeForgotten()
	if x.gvisor.all["forgotten"] {
		t.Error("a container that containerd has forgotten is still there")
	}
	x.remove("sandbox", "")
	x.serves(false)
}

// TestRouterEnded: a container that had ended in the snapshot has a service of its own the first time.
func TestRouterEnded(t *testing.T) {
	x := newRouterTest(t)
	x.create("sandbox", "sandbox", "sandbox", "")
	if err := x.router.pod.c.bundle.order(order{Containers: 1, Ended: []string{"init"}}); err != nil {
		t.Fatal(err)
	}
	x.create("init", "container", "sandbox", "")
	if _, ok := x.router.of("init").(*ended); !ok {
		t.Errorf("it is served by %T", x.router.of("init"))
	}
	if _, ok := x.router.of("sandbox").(*sleepService); !ok {
		t.Errorf("the sandbox is served by %T", x.router.of("sandbox"))
	}
	x.remove("init", "")
	x.serves(true)
}

// routerTest is a router over a gVisor that does nothing.
type routerTest struct {
	*testing.T
	dir    string
	gvisor several
	router *router
}

func newRouterTest(t *testing.T) *routerTest {
	gvisor := several{all: make(map[string]bool)}
	none := newAgent(filepath.Join(t.TempDir(), "none"))
	return &routerTest{t, t.TempDir(), gvisor, newRouter(new(process), none, gvisor)}
}

// write writes the bundle of a container, and returns it.
func (x *routerTest) write(id, kind, sandbox string) (dir string) {
	x.Helper()
	dir = filepath.Join(x.dir, id)
	config := `{"annotations": {"io.kubernetes.cri.container-type": "` + kind + `", "io.kubernetes.cri.sandbox-id": "` +
		sandbox + `", "io.kubernetes.cri.container-name": "` + id + `"}}`
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(specPath(dir), []byte(config), 0o600)); err != nil {
		x.Fatal(err)
	}
	return dir
}

func (x *routerTest) tryCreate(id, kind, sandbox, stdin string) error {
	dir := x.write(id, kind, sandbox)
	_, err := x.router.Create(x.Context(), &task.CreateTaskRequest{ID: id, Bundle: dir, Stdin: stdin})
	return err
}

func (x *routerTest) create(id, kind, sandbox, stdin string) {
	x.Helper()
	if err := x.tryCreate(id, kind, sandbox, stdin); err != nil {
		x.Fatal(err)
	}
}

func (x *routerTest) remove(id, exec string) {
	x.Helper()
	if _, err := x.router.Delete(x.Context(), &task.DeleteRequest{ID: id, ExecID: exec}); err != nil {
		x.Fatal(err)
	}
}

// serves checks whether the process goes on when containerd asks it to end.
func (x *routerTest) serves(want bool) {
	x.Helper()
	if _, err := x.router.Shutdown(x.Context(), &task.ShutdownRequest{ID: "x"}); (err != nil) != want {
		x.Errorf("it is asked to end: %v", err)
	}
}
