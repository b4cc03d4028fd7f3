package annotation

import (
	"path"
	"strings"
	"testing"

	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/flag"
)

func isData(volume string) bool { return volume == "data" }

func TestAllowed(t *testing.T) {
	for name, values := range map[string][]string{
		"dev.gvisor.spec.mount.data.type":         {"tmpfs", "bind"},
		"dev.gvisor.spec.mount.data.share":        {"container", "pod", "shared"},
		"dev.gvisor.spec.mount.data.options":      {"rw", "ro,noexec,nosuid,size=64m,mode=1777"},
		"dev.gvisor.empty-dir.data.force-shared":  {"true", "false"},
		"dev.gvisor.internal.checkpoint.enable":   {"true", ""},
		"dev.gvisor.internal.fscheckpoint.enable": {"true"},
		"dev.gvisor.flag.overlay2":                {"all:memory"},
		"dev.gvisor.flag.debug":                   {"true"},
	} {
		for _, v := range values {
			if !Allowed(name, v, isData) {
				t.Errorf("%s=%q is not allowed", name, v)
			}
		}
		if !matched(t, name) {
			t.Errorf("containerd does not pass %s on", name)
		}
	}
}

func matched(t *testing.T, name string) bool {
	t.Helper()
	for _, p := range Patterns {
		ok, err := path.Match(p, name)
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			return true
		}
	}
	return false
}

// TestHostileAnnotation: what names a place on the node, weakens the sandbox, or is not known, is not allowed.
func TestHostileAnnotation(t *testing.T) {
	for name, value := range map[string]string{
		"dev.gvisor.spec.rootfs.source":                         "/",
		"dev.gvisor.spec.rootfs.type":                           "bind",
		"dev.gvisor.spec.rootfs.overlay":                        "none",
		"dev.gvisor.spec.cgroup-parent":                         "/system.slice",
		"dev.gvisor.spec.mount.data.source":                     "/",
		"dev.gvisor.spec.mount.data.unknown":                    "x",
		"dev.gvisor.spec.mount.data.x.type":                     "bind",
		"dev.gvisor.spec.mount.other.type":                      "bind",
		"dev.gvisor.spec.mount.*.type":                          "bind",
		"dev.gvisor.spec.mount...type":                          "bind",
		"dev.gvisor.spec.mount.a/../data.type":                  "bind",
		"dev.gvisor.spec.mount..type":                           "bind",
		"dev.gvisor.spec.mount.data.type":                       "overlay",
		"dev.gvisor.spec.mount.data.share":                      "node",
		"dev.gvisor.spec.mount.data.options":                    "rw,lowerdir=/",
		"dev.gvisor.empty-dir.other.force-shared":               "true",
		"dev.gvisor.empty-dir.data.force-shared":                "perhaps",
		"dev.gvisor.empty-dir.data.source":                      "/",
		"dev.gvisor.bundle.experimental-high-performance":       "true",
		"dev.gvisor.flag.network":                               "host",
		"dev.gvisor.flag.debug-log":                             "/etc/",
		"dev.gvisor.flag.allow-flag-override":                   "true",
		"dev.gvisor.tar.rootfs.upper":                           "/etc/shadow",
		"dev.gvisor.tar.rootfs.upper.app":                       "/etc/shadow",
		"dev.gvisor.container-name-remap.1":                     "a=b",
		"dev.gvisor.internal.seccomp.app":                       "RuntimeDefault",
		"dev.gvisor.internal.nvproxy":                           "true",
		"dev.gvisor.internal.tpuproxy":                          "true",
		"dev.gvisor.internal.cpufeatures":                       "sse",
		"dev.gvisor.internal.checkpoint.path":                   "/etc",
		"dev.gvisor.internal.checkpoint.resume":                 "true",
		"dev.gvisor.internal.checkpoint.save-restore-exec-argv": "/bin/sh",
		"dev.gvisor.internal.fscheckpoint.paths":                "/",
		"dev.gvisor.not.known.yet":                              "x",
		"dev.gvisor.":                                           "",
	} {
		if Allowed(name, value, isData) {
			t.Errorf("%s=%q is allowed", name, value)
		}
		if !OfGVisor(name) {
			t.Errorf("%s is not one of gVisor's", name)
		}
	}
}

// TestHostileFlag: no flag is allowed that gVisor does not call safe, and none that it does is missing.
func TestHostileFlag(t *testing.T) {
	all := flag.NewFlagSet("all", flag.ContinueOnError)
	config.RegisterFlags(all)
	all.VisitAll(func(f *flag.Flag) {
		if got, want := Allowed(flagPrefix+f.Name, "", nil), config.IsFlagSafeToOverride(f.Name); got != want {
			t.Errorf("flag %s is allowed: %v, to gVisor: %v", f.Name, got, want)
		}
	})
}

func FuzzAllowed(f *testing.F) {
	f.Add("dev.gvisor.spec.mount.data.type", "tmpfs")
	f.Add("dev.gvisor.spec.mount.a.data.options", "rw,size=1")
	f.Fuzz(func(t *testing.T, name, value string) {
		if !Allowed(name, value, isData) {
			return
		}
		if strings.ContainsAny(name, "/*?[") || strings.Contains(name, "source") || strings.Contains(name, "rootfs") {
			t.Errorf("%q=%q is allowed", name, value)
		}
	})
}
