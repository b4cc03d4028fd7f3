// Package integration tests the installation on a node with a real containerd: containerd reads the drop-in, runs
// pods from what was installed, and forgets it again.
package integration

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"diapause.dev/agent/install"
	"diapause.dev/cri"
	"diapause.dev/test/bed"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	config = "/etc/containerd/config.toml"
	dir    = "/opt/diapause"
)

var node *bed.Bed

func TestMain(m *testing.M) {
	bed.MainShared(m, func(_ context.Context, b *bed.Bed) error {
		node = b
		return nil
	})
}

// options returns the options of an installation that counts its restarts.
func options(t *testing.T, restarts *int) install.Options {
	return install.Options{
		Host: "/", Programs: node.Bin.Dir, Dir: dir,
		Config: config, DropIn: "/etc/containerd/conf.d/diapause.toml", Socket: bed.ContainerdSocket,
		Handlers: []string{"installed", "gvisor"}, Flags: install.DefaultFlags(),
		Restart: func(ctx context.Context) error {
			*restarts++
			return node.Containerd.Restart(ctx)
		},
		Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
}

// TestInstall goes through the life of an installation. Each step needs the one before.
func TestInstall(t *testing.T) {
	restarts := 0
	o := options(t, &restarts)
	wantRestarts := func(n int, after string) {
		t.Helper()
		if restarts != n {
			t.Fatalf("containerd was restarted %d times after %s, want %d", restarts, after, n)
		}
	}
	installWithoutImport(t, o)
	must(t, install.Install(t.Context(), o))
	wantRestarts(1, "the first installation")
	must(t, install.Install(t.Context(), o))
	wantRestarts(1, "a second installation")
	wantHandler(t, "runc", true)

	pod, err := node.RunPod(t.Context(), bed.PodSpec{Name: "installed", Handler: "gvisor"})
	if err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"containerd-shim-diapause-v1", "runsc"} {
		if running(t, filepath.Join(dir, "bin", program)) == 0 {
			t.Errorf("no process runs the installed %s", program)
		}
	}
	upgrade(t, &o)
	must(t, install.Install(t.Context(), o))
	wantRestarts(1, "an upgrade of the programs")
	if !strings.HasPrefix(exec(t, pod, "echo", "alive"), "alive") {
		t.Error("the upgrade hurt the pod that runs")
	}

	if err := install.Uninstall(t.Context(), o, false); !errors.Is(err, install.ErrInUse) ||
		!strings.Contains(err.Error(), "default/installed") {
		t.Fatalf("uninstall while a pod runs: %v", err)
	}
	must(t, install.Uninstall(t.Context(), o, true))
	wantRestarts(2, "a forced uninstallation")
	wantHandler(t, "gvisor", false)
	if _, err := node.RunPod(t.Context(), bed.PodSpec{Name: "nobody", Handler: "gvisor"}); err == nil {
		t.Error("a pod has started under a handler that was taken away")
	}
	if running(t, dir+"/bin/runsc (deleted)") == 0 {
		t.Error("the forced uninstallation ended the pod that runs")
	}
	must(t, node.RemovePod(t.Context(), pod.ID))
	must(t, install.Uninstall(t.Context(), o, false))
	wantRestarts(2, "the rest of the uninstallation")
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 { // dir itself is a mount of the bed
		t.Errorf("left in %s: %v, %v", dir, left, err)
	}
	wantHandler(t, bed.Diapause, true)
}

// TestInterruptedInstall: containerd has not read what an earlier installation left, so the next one restarts it,
// here with a signal.
func TestInterruptedInstall(t *testing.T) {
	restarts := 0
	o := options(t, &restarts)
	o.Restart = nil
	must(t, install.Install(t.Context(), o))
	wantHandler(t, "gvisor", false)

	var err error
	if o.Restart, err = o.Restarter(install.RestartSignal); err != nil {
		t.Fatal(err)
	}
	supervisor := make(chan error, 1)
	ended := node.Containerd.Done()
	go func() {
		<-ended
		supervisor <- node.Containerd.Restart(t.Context())
	}()
	must(t, install.Install(t.Context(), o))
	must(t, <-supervisor)
	wantHandler(t, "gvisor", true)

	o = options(t, &restarts)
	must(t, install.Uninstall(t.Context(), o, false))
}

// version2 is a configuration of containerd in its older format. It leaves out what a bed's configuration needs to
// run pods.
const version2 = `version = 2
imports = ["/etc/containerd/conf.d/*.toml"]
[plugins.'io.containerd.grpc.v1.cri']
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins.'io.containerd.grpc.v1.cri'.cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"
`

// TestVersion2 installs on a node whose containerd has a configuration in its older format. Containerd still has the
// handler that it has by default, and what its main file says.
func TestVersion2(t *testing.T) {
	whole, err := os.ReadFile(config)
	must(t, err)
	must(t, os.WriteFile(config, []byte(version2), 0o644))
	restarts := 0
	o := options(t, &restarts)
	must(t, install.Install(t.Context(), o))
	for _, name := range []string{"runc", "installed", "gvisor"} {
		wantHandler(t, name, true)
	}
	status, err := node.Runtime.Status(t.Context(), &criapi.StatusRequest{Verbose: true})
	must(t, err)
	if c := status.Info["config"]; !strings.Contains(c, `"restrictOOMScoreAdj":true`) {
		t.Errorf("containerd does not run with what its main file says: %s", c)
	}
	must(t, install.Uninstall(t.Context(), o, false))
	wantHandler(t, "gvisor", false)
	must(t, os.WriteFile(config, whole, 0o644))
	must(t, node.Containerd.Restart(t.Context()))
}

// installWithoutImport tries to install while containerd's configuration imports nothing.
func installWithoutImport(t *testing.T, o install.Options) {
	t.Helper()
	whole, err := os.ReadFile(config)
	must(t, err)
	without := regexp.MustCompile(`(?m)^imports = .*$`).ReplaceAll(whole, nil)
	must(t, os.WriteFile(config, without, 0o644))
	err = install.Install(t.Context(), o)
	must(t, os.WriteFile(config, whole, 0o644))
	if err == nil || !strings.Contains(err.Error(), "write `imports = ") {
		t.Fatalf("installed without an import: %v", err)
	}
}

// upgrade changes the programs of the installation: each gets one more byte.
func upgrade(t *testing.T, o *install.Options) {
	t.Helper()
	from := o.Programs
	o.Programs = filepath.Join(t.TempDir(), "bin")
	for _, name := range []string{"containerd-shim-diapause-v1", "runsc-fast", "diapause", "gvisor-bin/checkpointgofer"} {
		data, err := os.ReadFile(filepath.Join(from, name))
		must(t, err)
		path := filepath.Join(o.Programs, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, append(data, 0), 0o755))
	}
}

// running returns a process that runs the program, or 0 if there is none.
func running(t *testing.T, program string) int {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	must(t, err)
	for _, l := range links {
		var pid int
		if target, err := os.Readlink(l); err == nil && target == program {
			if _, err := fmt.Sscanf(l, "/proc/%d/exe", &pid); err == nil {
				return pid
			}
		}
	}
	return 0
}

func wantHandler(t *testing.T, name string, want bool) {
	t.Helper()
	c, err := cri.Dial(t.Context(), cri.Options{})
	must(t, err)
	defer c.Close()
	all, err := c.Handlers(t.Context())
	must(t, err)
	if _, ok := all[name]; ok != want {
		t.Fatalf("containerd knows the handler %s: %v, want %v", name, ok, want)
	}
}

func exec(t *testing.T, pod *bed.Pod, command ...string) string {
	t.Helper()
	out, _, err := node.Exec(t.Context(), pod.Containers[0].ID, command...)
	must(t, err)
	return out
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
