package plan

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// takeDevices takes over what a container has of the node: mounts and devices. Each path of the node takes an allowance
// for that very path, also those that a kubelet has made for a pod: they are in the directory of another pod, and only
// that pod may have them.
func (p *Plan) takeDevices(config *criapi.ContainerConfig, r *containerRecord) error {
	for _, m := range r.Mounts {
		mount, err := p.mount(m)
		if err != nil {
			return fmt.Errorf("its mount %.200q: %w", m.ContainerPath, err)
		}
		if mount != nil {
			config.Mounts = append(config.Mounts, mount)
		}
	}
	for _, d := range r.Devices {
		if strings.Trim(d.Permissions, "rwm") != "" {
			return fmt.Errorf("its device %.200q has permissions %.80q", d.HostPath, d.Permissions)
		}
		if p.may(kindDevice, filepath.Clean(d.HostPath)) {
			config.Devices = append(config.Devices, &criapi.Device{
				ContainerPath: d.ContainerPath, HostPath: filepath.Clean(d.HostPath), Permissions: d.Permissions,
			})
		}
	}
	for _, d := range r.CDIDevices {
		if p.may(kindCDI, d.Name) {
			config.CDIDevices = append(config.CDIDevices, &criapi.CDIDevice{Name: d.Name})
		}
	}
	return nil
}

// mountOptions are those that a record may ask for.
var mountOptions = []string{
	"rw", "ro", "exec", "noexec", "suid", "nosuid", "dev", "nodev", "atime", "noatime", "relatime", "norelatime",
}

// mount returns a mount of a container of the new pod, or nil if it is not allowed. Nothing that is mounted in gVisor
// is seen on the node, so a mount propagates at most from there.
func (p *Plan) mount(r mountRecord) (*criapi.Mount, error) {
	for _, o := range r.MountOptions {
		if !slices.Contains(mountOptions, o) {
			return nil, fmt.Errorf("option %.80q is not known", o)
		}
	}
	out := &criapi.Mount{
		ContainerPath: r.ContainerPath, Readonly: r.Readonly, RecursiveReadOnly: r.RecursiveReadOnly,
		MountOptions: r.MountOptions,
	}
	if r.Propagation != int32(criapi.MountPropagation_PROPAGATION_PRIVATE) {
		out.Propagation = criapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
	}
	if r.Image != nil && r.Image.Image != "" && r.HostPath == "" {
		if r.ImageSubPath != "" && !filepath.IsLocal(r.ImageSubPath) {
			return nil, fmt.Errorf("path %.200q leaves the image", r.ImageSubPath)
		}
		out.Image = &criapi.ImageSpec{
			Image: r.Image.Image, UserSpecifiedImage: r.Image.UserSpecifiedImage, ImageRef: r.Image.ImageRef,
		}
		out.ImageSubPath = r.ImageSubPath
		return out, nil
	}
	if !filepath.IsAbs(r.HostPath) {
		return nil, fmt.Errorf("it is of %.200q, which is no path of a node", r.HostPath)
	}
	out.HostPath = filepath.Clean(r.HostPath)
	if !p.may(kindHostPath, out.HostPath) {
		return nil, nil
	}
	return out, nil
}

// cgroup returns the cgroup of the new pod: a new one beside that of the recorded pod. It must not be in the cgroup of
// something else, whose limits it would share.
func (p *Plan) cgroup(recorded string) (string, error) {
	if recorded == "" {
		return "", nil
	}
	parent, name := filepath.Split(filepath.Clean(recorded))
	if !filepath.IsAbs(recorded) || strings.ContainsAny(recorded, "\x00\n") {
		return "", fmt.Errorf("its cgroup %.200q is no absolute path", recorded)
	}
	renamed := name
	if p.old.uid != "" {
		underscored := func(uid string) string { return strings.ReplaceAll(uid, "-", "_") }
		renamed = strings.ReplaceAll(name, p.old.uid, p.id.UID)
		if renamed == name {
			renamed = strings.ReplaceAll(name, underscored(p.old.uid), underscored(p.id.UID))
		}
	}
	if (renamed == name || !p.vacant(parent)) && !p.may(kindCgroup, filepath.Clean(recorded)) {
		return "", nil
	}
	return filepath.Join(parent, renamed), nil
}

// vacant reports whether a cgroup and those above it, except the root, are there only to hold others.
func (p *Plan) vacant(dir string) bool {
	for dir = filepath.Clean(dir); dir != "/"; dir = filepath.Dir(dir) {
		if base := filepath.Base(dir); strings.HasPrefix(base, "pod") || strings.Contains(base, "-pod") ||
			p.id.Occupied != nil && p.id.Occupied(dir) {
			return false
		}
	}
	return true
}
