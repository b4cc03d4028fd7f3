package bed

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"diapause.dev/test/images"
	"diapause.dev/test/tools"
)

const (
	configFile = "/etc/containerd/config.toml"
	cniFile    = "/etc/cni/net.d/10-bridge.conflist"
	// RunscFile is the configuration of the handler [Diapause], which the shim
	// reads for each pod anew.
	RunscFile = "/etc/containerd/diapause-runsc.toml"
)

// The runtime handlers of a bed.
const (
	// Runc runs pods as ordinary containers.
	Runc = "runc"
	// Diapause runs pods in gVisor, by our shim.
	Diapause = "diapause"
)

// writeConfig writes the configuration files of containerd, of our handler and
// of the pod network, in which pods have addresses of that range.
func writeConfig(s space, o Options, pods string) error {
	return s.writeFiles(map[string]string{
		configFile: containerdConfig(o), RunscFile: runscConfig(o),
		cniFile: cniConfig(o, pods),
	})
}

// containerdConfig keeps the daemon from lowering any oom_score_adj, since root
// may lack the capability for that in a container, and from loading an AppArmor
// profile, since that would be for the whole machine.
func containerdConfig(o Options) string {
	return fmt.Sprintf(`version = 3
imports = ["/etc/containerd/conf.d/*.toml"]
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.erofs",
  "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing", "io.containerd.nri.v1.nri",
]
[grpc]
  address = %[1]q
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = %[2]q
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  disable_apparmor = true
  stats_collect_period = %[7]q
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = [%[3]q]
  conf_dir = %[4]q
[plugins.'io.containerd.cri.v1.runtime'.containerd]
  default_runtime_name = "runc"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  runtime_path = %[5]q
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.diapause]
  runtime_type = "io.containerd.diapause.v1"
  pod_annotations = ["dev.gvisor.*", "podsnapshot.gke.io/*", "diapause.dev/*"]
  container_annotations = ["dev.gvisor.*", "podsnapshot.gke.io/*", "diapause.dev/*"]
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.diapause.options]
  TypeUrl = "io.containerd.runsc.v1.options"
  ConfigPath = %[6]q
`, ContainerdSocket, images.Pause, tools.CNIPlugins, filepath.Dir(cniFile), here.Bin.Path("containerd-shim-runc-v2"),
		RunscFile, o.StatsPeriod)
}

func runscConfig(o Options) string {
	flags := map[string]string{
		"platform": "systrap", "restore-spec-validation": "ignore", "allow-connected-on-save": "true",
	}
	maps.Copy(flags, o.Runsc)
	var b strings.Builder
	fmt.Fprintf(&b, "binary_name = %q\n[runsc_config]\n", here.Bin.Path("runsc"))
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		fmt.Fprintf(&b, "  %s = %q\n", name, flags[name])
	}
	return b.String()
}

func cniConfig(o Options, pods string) string {
	ranges, routes := fmt.Sprintf(`[{"subnet": %q}]`, pods), `{"dst": "0.0.0.0/0"}`
	if o.DualStack {
		ranges += fmt.Sprintf(`, [{"subnet": %q}]`, podCIDR6)
		routes += `, {"dst": "::/0"}`
	}
	return fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "bed", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "ranges": [%s], "routes": [%s]}}
]}
`, ranges, routes)
}
