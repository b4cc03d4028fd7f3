// Package annotation knows which of gVisor's annotations a pod's author may set. Runsc obeys all of them, and runs as
// root: some name paths of the node that it opens, others move the sandbox into another cgroup or change runsc's flags.
// So what is allowed is listed here, and everything else is dropped (runsc/shim/spec.go) or not taken over from a
// snapshot (cri/plan/plan.go).
package annotation

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	prefix       = "dev.gvisor."
	mountPrefix  = prefix + "spec.mount."
	volumePrefix = prefix + "empty-dir."
	volumeSuffix = ".force-shared"
	flagPrefix   = prefix + "flag."
)

// Patterns match the names of annotations that a pod's author may set, in the notation of containerd's configuration.
// They match some more names: see [Allowed].
var Patterns = []string{
	mountPrefix + "*", volumePrefix + "*", flagPrefix + "*", saveWhole, saveFiles,
}

// The annotations by which a pod's processes may save their own sandbox, as a whole or its files alone.
const (
	saveWhole = prefix + "internal.checkpoint.enable"
	saveFiles = prefix + "internal.fscheckpoint.enable"
)

// flags are the flags of runsc that gVisor lets a container's author set: they do not make a sandbox less secure
// (runsc/config, overrideAllowlist). Runsc checks their values.
var flags = []string{
	"allow-connected-on-save", "debug", "debug-command", "debug-to-user-log", "host-uds", "in-sandbox-cgroup",
	"net-disconnect-ok", "oci-seccomp", "overlay2", "pause-external-networking", "qdisc", "qdisc-tbf-burst",
	"qdisc-tbf-rate", "reproduce-nftables", "strace", "strace-log-size", "strace-syscalls",
}

// mountFields are the fields of a mount hint that a pod's author may set, with a check of the value. GVisor's shim adds
// the field source, a path of the node.
var mountFields = map[string]func(value string) bool{
	"type":    func(v string) bool { return v == "tmpfs" || v == "bind" },
	"share":   func(v string) bool { return v == "container" || v == "pod" || v == "shared" },
	"options": areOptions,
}

// options are the mount options of a hint.
var options = []string{
	"rw", "ro", "exec", "noexec", "suid", "nosuid", "dev", "nodev", "atime", "noatime", "relatime", "norelatime",
}

// sized matches the mount options of a tmpfs that have a value.
var sized = regexp.MustCompile(`^(size=[0-9]{1,18}[kKmMgG]?|mode=[0-7]{1,4})$`)

// volumeName matches the names that Kubernetes gives volumes.
var volumeName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// OfGVisor reports whether an annotation is one of gVisor's.
func OfGVisor(name string) bool { return strings.HasPrefix(name, prefix) }

// Allowed reports whether a pod's author may set one of gVisor's annotations to a value. If the annotation names a
// volume, isVolume decides whether the pod has it; nil: any volume will do.
func Allowed(name, value string, isVolume func(volume string) bool) bool {
	has := func(volume string) bool {
		return volumeName.MatchString(volume) && (isVolume == nil || isVolume(volume))
	}
	if hint, ok := strings.CutPrefix(name, mountPrefix); ok {
		volume, field, _ := strings.Cut(hint, ".")
		fits := mountFields[field]
		return fits != nil && fits(value) && has(volume)
	}
	if volume, ok := strings.CutPrefix(name, volumePrefix); ok {
		volume, ok = strings.CutSuffix(volume, volumeSuffix)
		return ok && isBool(value) && has(volume)
	}
	if flag, ok := strings.CutPrefix(name, flagPrefix); ok {
		return slices.Contains(flags, flag)
	}
	return name == saveWhole || name == saveFiles
}

func areOptions(value string) bool {
	for option := range strings.SplitSeq(value, ",") {
		if !slices.Contains(options, option) && !sized.MatchString(option) {
			return false
		}
	}
	return true
}

func isBool(value string) bool {
	_, err := strconv.ParseBool(value)
	return err == nil
}
