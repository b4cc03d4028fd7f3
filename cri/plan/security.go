package plan

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// sandboxSecurity returns the security context of the new pod.
func (p *Plan) sandboxSecurity(r *securityRecord) (*criapi.LinuxSandboxSecurityContext, error) {
	if r == nil {
		return nil, nil
	}
	namespaces, err := p.namespaces(r.NamespaceOptions)
	if err != nil {
		return nil, err
	}
	seccomp, apparmor, err := p.profiles(r)
	if err != nil {
		return nil, err
	}
	return &criapi.LinuxSandboxSecurityContext{
		NamespaceOptions: namespaces, SelinuxOptions: p.selinux(r.SELinuxOptions),
		RunAsUser: r.RunAsUser.value(), RunAsGroup: r.RunAsGroup.value(),
		ReadonlyRootfs:           r.ReadonlyRootfs,
		SupplementalGroups:       r.SupplementalGroups,
		SupplementalGroupsPolicy: groupsPolicy(r.SupplementalGroupsPolicy),
		Privileged:               r.Privileged && p.may(kindPrivileged, ""),
		Seccomp:                  seccomp, Apparmor: apparmor,
	}, nil
}

// containerSecurity returns the security context of a container of the new pod. Which paths of /proc are masked is not
// taken over: the runtime's default holds.
func (p *Plan) containerSecurity(r *securityRecord) (*criapi.LinuxContainerSecurityContext, error) {
	if r == nil {
		return nil, nil
	}
	namespaces, err := p.namespaces(r.NamespaceOptions)
	if err != nil {
		return nil, err
	}
	seccomp, apparmor, err := p.profiles(r)
	if err != nil {
		return nil, err
	}
	return &criapi.LinuxContainerSecurityContext{
		Capabilities:     p.capabilities(r),
		Privileged:       r.Privileged && p.may(kindPrivileged, ""),
		NamespaceOptions: namespaces, SelinuxOptions: p.selinux(r.SELinuxOptions),
		RunAsUser: r.RunAsUser.value(), RunAsGroup: r.RunAsGroup.value(), RunAsUsername: r.RunAsUsername,
		ReadonlyRootfs:           r.ReadonlyRootfs,
		SupplementalGroups:       r.SupplementalGroups,
		SupplementalGroupsPolicy: groupsPolicy(r.SupplementalGroupsPolicy),
		NoNewPrivs:               r.NoNewPrivs,
		Seccomp:                  seccomp, Apparmor: apparmor,
	}, nil
}

func (r *int64Record) value() *criapi.Int64Value {
	if r == nil {
		return nil
	}
	return &criapi.Int64Value{Value: r.Value}
}

// groupsPolicy returns Strict if the record says so, and otherwise the default.
func groupsPolicy(recorded int32) criapi.SupplementalGroupsPolicy {
	if strict := criapi.SupplementalGroupsPolicy_Strict; recorded == int32(strict) {
		return strict
	}
	return criapi.SupplementalGroupsPolicy_Merge
}

// namespaces returns the namespaces of the new pod, or of one of its containers.
func (p *Plan) namespaces(r *namespacesRecord) (*criapi.NamespaceOption, error) {
	if r == nil {
		return nil, nil
	}
	out := new(criapi.NamespaceOption)
	for _, n := range []struct {
		name string
		mode int32
		into *criapi.NamespaceMode
	}{{"network", r.Network, &out.Network}, {"pid", r.PID, &out.Pid}, {"ipc", r.IPC, &out.Ipc}} {
		switch mode := criapi.NamespaceMode(n.mode); {
		case mode == criapi.NamespaceMode_POD, mode == criapi.NamespaceMode_CONTAINER && n.name == "pid",
			mode == criapi.NamespaceMode_NODE && p.may(kindNamespace, n.name):
			*n.into = mode
		case mode != criapi.NamespaceMode_NODE:
			return nil, fmt.Errorf("its %s namespace is of mode %d, which cannot be restored", n.name, n.mode)
		}
	}
	if u := r.User; u != nil && criapi.NamespaceMode(u.Mode) != criapi.NamespaceMode_NODE && p.may(kindUserNS, "") {
		out.UsernsOptions = &criapi.UserNamespace{Uids: mappings(u.UIDs), Gids: mappings(u.GIDs)}
	}
	return out, nil
}

func mappings(recorded []idRecord) (out []*criapi.IDMapping) {
	for _, m := range recorded {
		out = append(out, &criapi.IDMapping{HostId: m.HostID, ContainerId: m.ContainerID, Length: m.Length})
	}
	return out
}

func (p *Plan) selinux(r *selinuxRecord) *criapi.SELinuxOption {
	if r == nil || *r == (selinuxRecord{}) ||
		!p.may(kindSELinux, strings.Join([]string{r.User, r.Role, r.Type, r.Level}, ":")) {
		return nil
	}
	return &criapi.SELinuxOption{User: r.User, Role: r.Role, Type: r.Type, Level: r.Level}
}

// profiles returns the profiles that confine the new pod, or one of its containers.
func (p *Plan) profiles(r *securityRecord) (seccomp, apparmor *criapi.SecurityProfile, err error) {
	if seccomp, err = p.profile(kindSeccomp, r.Seccomp, r.SeccompProfilePath); err != nil {
		return nil, nil, err
	}
	apparmor, err = p.profile(kindApparmor, r.AppArmor, r.AppArmorProfile)
	return seccomp, apparmor, err
}

// profile returns one of them. Name is the profile in the notation of older versions of the CRI.
func (p *Plan) profile(kind string, r *profileRecord, name string) (*criapi.SecurityProfile, error) {
	if r == nil && name == "" {
		return nil, nil
	}
	if r == nil {
		r = profileNamed(name)
	}
	out := &criapi.SecurityProfile{ProfileType: criapi.SecurityProfile_ProfileType(r.Type)}
	switch out.ProfileType {
	case criapi.SecurityProfile_RuntimeDefault:
		return out, nil
	case criapi.SecurityProfile_Unconfined:
		if p.may(kind, "unconfined") {
			return out, nil
		}
	case criapi.SecurityProfile_Localhost:
		if p.may(kind, "localhost/"+r.LocalhostRef) {
			out.LocalhostRef = r.LocalhostRef
			return out, nil
		}
	default:
		return nil, fmt.Errorf("its %s profile is of type %d, which is not known", kind, r.Type)
	}
	return nil, nil
}

// profileNamed returns the profile that has a name in older versions of the CRI.
func profileNamed(name string) *profileRecord {
	if name == "runtime/default" || name == "docker/default" {
		return &profileRecord{Type: int32(criapi.SecurityProfile_RuntimeDefault)}
	}
	if ref, ok := strings.CutPrefix(name, "localhost/"); ok {
		return &profileRecord{Type: int32(criapi.SecurityProfile_Localhost), LocalhostRef: ref}
	}
	return &profileRecord{Type: int32(criapi.SecurityProfile_Unconfined)}
}

// defaultCapabilities are those that containerd gives a container that asks for none.
var defaultCapabilities = []string{
	"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "NET_RAW",
	"SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
}

// capabilities returns the capabilities that are added and dropped. To drop one is always allowed.
func (p *Plan) capabilities(r *securityRecord) *criapi.Capability {
	if r.Capabilities == nil {
		return nil
	}
	may := func(name string) bool {
		name = strings.TrimPrefix(strings.ToUpper(name), "CAP_")
		return slices.Contains(defaultCapabilities, name) || p.may(kindCapability, name)
	}
	return &criapi.Capability{
		AddCapabilities:        only(r.Capabilities.Add, may),
		DropCapabilities:       r.Capabilities.Drop,
		AddAmbientCapabilities: only(r.Capabilities.Ambient, may),
	}
}

// only returns the elements for which f holds. It calls f for all.
func only(all []string, f func(string) bool) (out []string) {
	for _, s := range all {
		if f(s) {
			out = append(out, s)
		}
	}
	return out
}

// safeSysctls belong to the pod's namespaces alone. They are those that Kubernetes calls safe.
var safeSysctls = []string{
	"kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_local_reserved_ports",
	"net.ipv4.ip_unprivileged_port_start", "net.ipv4.ping_group_range", "net.ipv4.tcp_fin_timeout",
	"net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_keepalive_time",
	"net.ipv4.tcp_rmem", "net.ipv4.tcp_syncookies", "net.ipv4.tcp_wmem",
}

func (p *Plan) sysctls(recorded map[string]string) map[string]string {
	out := make(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(recorded)) {
		if slices.Contains(safeSysctls, name) || p.may(kindSysctl, name) {
			out[name] = recorded[name]
		}
	}
	return out
}

// Parts of cgroup files' names and contents in a record.
var (
	pageSize   = regexp.MustCompile(`^[0-9]{1,6}[KMG]B$`)
	cpuList    = regexp.MustCompile(`^[0-9,-]{0,1000}$`)
	cgroupFile = regexp.MustCompile(`^[a-z]{1,20}(\.[a-z0-9_]{1,20}){1,3}$`)
)

// plainFiles are the files of a cgroup that only limit it.
var plainFiles = []string{
	"cpu.max", "cpu.weight", "memory.high", "memory.max", "memory.oom.group", "memory.swap.max", "pids.max",
}

// resources returns limits of the new pod, or of one of its containers. The kernel never protects a pod from a record
// better than others when memory runs out.
func (p *Plan) resources(r *resourcesRecord) (*criapi.LinuxContainerResources, error) {
	if r == nil {
		return nil, nil
	}
	if !cpuList.MatchString(r.CpusetCPUs) || !cpuList.MatchString(r.CpusetMems) {
		return nil, fmt.Errorf("its CPUs are %.80q and %.80q, which is no list", r.CpusetCPUs, r.CpusetMems)
	}
	out := &criapi.LinuxContainerResources{
		CpuPeriod: r.CPUPeriod, CpuQuota: r.CPUQuota, CpuShares: r.CPUShares,
		MemoryLimitInBytes: r.MemoryLimit, MemorySwapLimitInBytes: r.SwapLimit,
		OomScoreAdj: max(0, r.OOMScoreAdj),
		CpusetCpus:  r.CpusetCPUs, CpusetMems: r.CpusetMems,
	}
	for _, h := range r.HugepageLimit {
		if !pageSize.MatchString(h.PageSize) {
			return nil, fmt.Errorf("its limit of huge pages is for pages of size %.80q", h.PageSize)
		}
		out.HugepageLimits = append(out.HugepageLimits, &criapi.HugepageLimit{PageSize: h.PageSize, Limit: h.Limit})
	}
	for _, name := range slices.Sorted(maps.Keys(r.Unified)) {
		if !cgroupFile.MatchString(name) {
			return nil, fmt.Errorf("its limit %.80q is no file of a cgroup", name)
		}
		if slices.Contains(plainFiles, name) || p.may(kindResource, name) {
			if out.Unified == nil {
				out.Unified = make(map[string]string)
			}
			out.Unified[name] = r.Unified[name]
		}
	}
	return out, nil
}
