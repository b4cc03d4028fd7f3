package install

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"diapause.dev/runsc/sleep"
)

// sandboxes is a containerd with some sandboxes.
type sandboxes struct {
	versioned
	ids []string
}

func (s sandboxes) ListPodSandbox(context.Context, *criapi.ListPodSandboxRequest) (
	*criapi.ListPodSandboxResponse, error,
) {
	r := &criapi.ListPodSandboxResponse{}
	for _, id := range s.ids {
		r.Items = append(r.Items, &criapi.PodSandbox{Id: id})
	}
	return r, nil
}

// remind writes the reminder of a pod that sleeps.
func remind(t *testing.T, o Options, pod, sandbox string) {
	t.Helper()
	write(t, sleep.ReminderPath(o.host(sleep.Reminders), pod), fmt.Sprintf(`{"format":1,"sandbox":%q,`+
		`"pod":{"Namespace":"n","Name":%q,"UID":%q},"snapshot":{"namespace":"n","name":"s"}}`, sandbox, pod, pod), 0o600)
}

// TestInstallSparesAsleep: while pods sleep, another version of gVisor is not installed, and the error says how many
// pods it would cost. Pods that are gone do not count. The same version, and who insists, are served.
func TestInstallSparesAsleep(t *testing.T) {
	o := options(t)
	path := o.host(o.Socket)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	criapi.RegisterRuntimeServiceServer(s, sandboxes{versioned{version: "v2.3.2"}, []string{"here", "there"}})
	go s.Serve(l)
	t.Cleanup(s.Stop)
	write(t, o.host(o.Config), "version = 3\nimports = ['/etc/containerd/conf.d/*.toml']\n", 0o644)
	program := func(version string) string { return "#!/bin/sh\necho runsc version " + version + "\n" }
	installed := o.host(o.Dir, "bin", runscProgram)
	write(t, installed, program("1"), 0o755)
	write(t, o.source(runscProgram), program("2"), 0o755)
	if err := o.spareAsleep(t.Context()); err != nil {
		t.Errorf("nobody sleeps: %v", err)
	}
	remind(t, o, "gone", "nowhere")
	if err := o.spareAsleep(t.Context()); err != nil {
		t.Errorf("a pod slept that is gone: %v", err)
	}
	remind(t, o, "one", "here")
	remind(t, o, "two", "there")
	err = Install(t.Context(), o)
	if !errors.Is(err, ErrAsleep) || !strings.Contains(err.Error(), ": 2, n/one, n/two; installed is version 1, this one "+
		"brings 2,") {
		t.Errorf("another version: %v", err)
	}
	if data, err := os.ReadFile(installed); string(data) != program("1") {
		t.Errorf("it was installed all the same: %q, %v", data, err)
	}
	o.EndAsleep = true
	if err := o.spareAsleep(t.Context()); err != nil {
		t.Errorf("on demand: %v", err)
	}
	o.EndAsleep = false
	write(t, o.source(runscProgram), program("1"), 0o755)
	if err := o.spareAsleep(t.Context()); err != nil {
		t.Errorf("the same version: %v", err)
	}
}
