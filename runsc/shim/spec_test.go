package shim

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"testing"
)

// left returns the annotations of a spec that reach runsc, and those that are dropped. The pod has the volume data.
func left(t *testing.T, annotations map[string]string) (now map[string]string, dropped []string) {
	t.Helper()
	dir := t.TempDir()
	spec, err := json.Marshal(map[string]any{"annotations": annotations})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(specPath(dir), spec, 0o600); err != nil {
		t.Fatal(err)
	}
	dropped, err = annotate(dir, nil, func(name string) bool { return name == "data" })
	if err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(specPath(dir))
	if err != nil {
		t.Fatal(err)
	}
	var out struct{ Annotations map[string]string }
	if err := json.Unmarshal(written, &out); err != nil {
		t.Fatal(err)
	}
	return out.Annotations, dropped
}

// ofContainerd are annotations that containerd sets; runsc and gVisor's shim read them.
var ofContainerd = map[string]string{
	"io.kubernetes.cri.container-type": "sandbox", "io.kubernetes.cri.sandbox-id": "x",
	"io.kubernetes.cri.sandbox-log-directory": "/var/log/pods/a_b_c", "io.kubernetes.cri.container-name": "app",
}

// drops fails the test unless all these annotations are dropped, and others stay.
func drops(t *testing.T, attacks map[string]string) {
	t.Helper()
	all := maps.Clone(ofContainerd)
	maps.Copy(all, attacks)
	now, dropped := left(t, all)
	if !maps.Equal(now, ofContainerd) {
		t.Errorf("runsc gets %v", now)
	}
	if !slices.Equal(dropped, slices.Sorted(maps.Keys(attacks))) {
		t.Errorf("dropped are %q", dropped)
	}
}

// TestHostileRootfs: runsc would open any path of the node as the root file system.
func TestHostileRootfs(t *testing.T) {
	drops(t, map[string]string{
		"dev.gvisor.spec.rootfs.source": "/", "dev.gvisor.spec.rootfs.type": "bind",
		"dev.gvisor.spec.rootfs.overlay": "none", "dev.gvisor.tar.rootfs.upper": "/etc/shadow",
		"dev.gvisor.tar.rootfs.upper.app": "/etc/shadow",
	})
}

// TestHostileCgroupParent: runsc would put the sandbox into any cgroup.
func TestHostileCgroupParent(t *testing.T) {
	drops(t, map[string]string{"dev.gvisor.spec.cgroup-parent": "/system.slice"})
}

// TestHostileMountHints: runsc would mount any path, and gVisor's shim take a volume's name for a pattern.
func TestHostileMountHints(t *testing.T) {
	drops(t, map[string]string{
		"dev.gvisor.spec.mount.data.source": "/", "dev.gvisor.spec.mount.x.source": "/",
		"dev.gvisor.spec.mount.x.type": "bind",
		"dev.gvisor.spec.mount.*.type": "tmpfs", "dev.gvisor.spec.mount.../../../data.type": "tmpfs",
		"dev.gvisor.spec.mount.data.options": "rw,upperdir=/", "dev.gvisor.empty-dir.x.force-shared": "true",
	})
}

// TestHostileFlags: runsc's flags are the node's, except for those that gVisor calls safe.
func TestHostileFlags(t *testing.T) {
	drops(t, map[string]string{
		"dev.gvisor.flag.network": "host", "dev.gvisor.flag.allow-flag-override": "true",
		"dev.gvisor.bundle.experimental-high-performance": "true", "dev.gvisor.container-name-remap.1": "a=b",
	})
}

// TestHostileInternals: gVisor's own annotations name paths, devices and programs.
func TestHostileInternals(t *testing.T) {
	drops(t, map[string]string{
		"dev.gvisor.internal.checkpoint.path": "/etc", "dev.gvisor.internal.checkpoint.direct": "true",
		"dev.gvisor.internal.checkpoint.save-restore-exec-argv": "/bin/sh", "dev.gvisor.internal.fscheckpoint.path": "/etc",
		"dev.gvisor.internal.nvproxy": "true", "dev.gvisor.internal.tpuproxy": "true",
		"dev.gvisor.internal.seccomp.app": "RuntimeDefault", "dev.gvisor.internal.cpufeatures": "x",
		"dev.gvisor.not.known.yet": "x",
	})
}

// TestAllowedStays: what a pod may set reaches runsc.
func TestAllowedStays(t *testing.T) {
	all := map[string]string{
		"dev.gvisor.spec.mount.data.type": "bind", "dev.gvisor.spec.mount.data.share": "pod",
		"dev.gvisor.spec.mount.data.options": "rw", "dev.gvisor.internal.checkpoint.enable": "true",
		"dev.gvisor.flag.debug": "true", "example.com/a": "b",
	}
	if now, dropped := left(t, all); !maps.Equal(now, all) || len(dropped) > 0 {
		t.Errorf("runsc gets %v, dropped are %q", now, dropped)
	}
}
