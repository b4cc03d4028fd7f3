package integration

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	containersapi "github.com/containerd/containerd/api/services/containers/v1"
	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	runtimeoptions "github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/anypb"

	"diapause.dev/cri"
	"diapause.dev/test/bed"
)

// uncreatable is a pod to be restored whose sandbox runsc refuses to create.
func uncreatable(name, key string) bed.PodSpec {
	spec := fromSnapshot(name, key)
	spec.Annotations["dev.gvisor.flag.overlay2"] = "wrong"
	return spec
}

// notCreated runs such a pod.
func (n *node) notCreated(spec bed.PodSpec) {
	n.Helper()
	if _, err := n.bed.RunPod(n.ctx, spec); err == nil || !strings.Contains(err.Error(), "setting flag overlay2") {
		n.Errorf("the pod is not refused by runsc: %v", err)
	}
}

// unused waits until a snapshot can be removed, which none is that is restored from.
func (n *node) unused(name string) {
	n.Helper()
	n.eventually(name+" is removed", func() error {
		_, err := n.cli("rm", name)
		return err
	})
	if left := n.restores(); len(left) != 0 {
		n.Errorf("restores under way: %v", left)
	}
}

// TestNotCreated prepares restores for sandboxes that runsc then does not create: nothing counts as
// restored from after that, be it that the agent had answered, that it was still reading, or that it hung.
func TestNotCreated(t *testing.T) {
	store, err := bed.StartGCS(t.Context(), "bucket")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Kill)
	gate := new(sync.RWMutex)
	t.Setenv("STORAGE_EMULATOR_HOST", gated(t, store.Address, gate))
	flags := func() []string { return []string{"--state-dir=" + t.TempDir(), "--store=gs://bucket"} }
	n := start(t, flags()...)
	n.workload("origin", "serve", "--mib=1")
	for _, name := range []string{"read", "unread", "kept"} {
		n.checkpoint("--name="+name, "origin")
	}
	n.restartAgent(flags()...) // which has nothing of them on the node

	n.notCreated(uncreatable("one", "default/read"))
	n.prepared("default/read")
	n.unused("read")

	gate.Lock()
	n.notCreated(uncreatable("two", "default/unread"))
	gate.Unlock()
	n.prepared("default/unread")
	n.unused("unread")

	n.signal(n.agent.PID(), syscall.SIGSTOP)
	n.notCreated(uncreatable("three", "default/kept"))
	n.signal(n.agent.PID(), syscall.SIGCONT)
	n.restore("kept")
}

// prepared waits until the agent has prepared a restore.
func (n *node) prepared(key string) {
	n.Helper()
	n.eventually("a restore is prepared", func() error {
		for line := range strings.Lines(n.agent.Log()) {
			if strings.Contains(line, "pod is to be restored") && strings.Contains(line, key) {
				return nil
			}
		}
		return errors.New("the agent's log does not say so")
	})
}

// gated returns the address of a server that passes everything on to the one at another address, except
// while the gate is locked.
func gated(t *testing.T, address string, gate *sync.RWMutex) string {
	t.Helper()
	to := &url.URL{Scheme: "http", Host: address}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		gate.RLock()
		defer gate.RUnlock()
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// TestNeverStarted creates a sandbox that is to be restored, and removes it before it is started. Until
// then its snapshot is in use.
func TestNeverStarted(t *testing.T) {
	n := start(t)
	n.workload("origin", "serve", "--mib=1")
	n.checkpoint("--name=saved", "origin")
	conn, err := grpc.NewClient("unix://"+bed.ContainerdSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ctx, id := namespaces.WithNamespace(n.ctx, cri.DefaultNamespace), "never"
	containers, tasks := containersapi.NewContainersClient(conn), tasksapi.NewTasksClient(conn)
	if _, err := containers.Create(ctx,
		&containersapi.CreateContainerRequest{Container: n.sandboxOf(id, "default/saved")}); err != nil {
		t.Fatal(err)
	}
	if _, err := tasks.Create(ctx, &tasksapi.CreateTaskRequest{ContainerID: id}); err != nil {
		t.Fatal(err)
	}
	n.refused([]string{"default/saved", "being restored"}, "rm", "saved")
	if _, err := tasks.Delete(ctx, &tasksapi.DeleteTaskRequest{ContainerID: id}); err != nil {
		t.Fatal(err)
	}
	if _, err := containers.Delete(ctx, &containersapi.DeleteContainerRequest{ID: id}); err != nil {
		t.Error(err)
	}
	n.unused("saved")
}

// sandboxOf is the sandbox container of a pod that is to be restored.
func (n *node) sandboxOf(id, key string) *containersapi.Container {
	n.Helper()
	spec, err := json.Marshal(&specs.Spec{
		Version: specs.Version,
		Root:    &specs.Root{Path: n.TempDir(), Readonly: true},
		Process: &specs.Process{Args: []string{"/none"}, Cwd: "/"},
		Linux: &specs.Linux{
			CgroupsPath: filepath.Join(n.bed.CgroupParent, id),
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace},
				{Type: specs.MountNamespace},
				{Type: specs.NetworkNamespace},
			},
		},
		Annotations: map[string]string{
			"io.kubernetes.cri.container-type":    "sandbox",
			"io.kubernetes.cri.sandbox-id":        id,
			"io.kubernetes.cri.sandbox-name":      id,
			"io.kubernetes.cri.sandbox-namespace": "default",
			"diapause.dev/restore-from":           key,
			"diapause.dev/on-restore-failure":     "Fail",
		},
	})
	if err != nil {
		n.Fatal(err)
	}
	options, err := typeurl.MarshalAnyToProto(&runtimeoptions.Options{
		TypeUrl:    "io.containerd.runsc.v1.options",
		ConfigPath: bed.RunscFile,
	})
	if err != nil {
		n.Fatal(err)
	}
	return &containersapi.Container{
		ID:      id,
		Spec:    &anypb.Any{TypeUrl: "types.containerd.io/opencontainers/runtime-spec/1/Spec", Value: spec},
		Runtime: &containersapi.Container_Runtime{Name: cri.RuntimeType, Options: options},
	}
}
