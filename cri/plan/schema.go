package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// maxConfig bounds one recorded configuration, in bytes.
const maxConfig = 2 << 20

// The types below are what Diapause reads of the configurations in a record, which are JSON of the CRI's types. Their
// fields are all that a containerd of today writes, so that none is left out unnoticed: a field that is not known is an
// error. What becomes of each field is decided in plan.go and the files beside it.

type sandboxRecord struct {
	Metadata *struct {
		Name      string `json:"name"`
		UID       string `json:"uid"`
		Namespace string `json:"namespace"`
		Attempt   uint32 `json:"attempt"`
	} `json:"metadata"`
	Hostname     string `json:"hostname"`
	LogDirectory string `json:"log_directory"`
	DNS          *struct {
		Servers  []string `json:"servers"`
		Searches []string `json:"searches"`
		Options  []string `json:"options"`
	} `json:"dns_config"`
	Ports []struct {
		Protocol      int32  `json:"protocol"`
		ContainerPort int32  `json:"container_port"`
		HostPort      int32  `json:"host_port"`
		HostIP        string `json:"host_ip"`
	} `json:"port_mappings"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	Linux       *struct {
		CgroupParent    string            `json:"cgroup_parent"`
		SecurityContext *securityRecord   `json:"security_context"`
		Sysctls         map[string]string `json:"sysctls"`
		Overhead        *resourcesRecord  `json:"overhead"`
		Resources       *resourcesRecord  `json:"resources"`
	} `json:"linux"`
	Windows json.RawMessage `json:"windows"`
}

type containerRecord struct {
	Metadata struct {
		Name    string `json:"name"`
		Attempt uint32 `json:"attempt"`
	} `json:"metadata"`
	Image      imageRecord `json:"image"`
	Command    []string    `json:"command"`
	Args       []string    `json:"args"`
	WorkingDir string      `json:"working_dir"`
	Envs       []struct {
		Key   string `json:"key"`
		Value string `json:"value"`
	} `json:"envs"`
	Mounts      []mountRecord     `json:"mounts"`
	Devices     []deviceRecord    `json:"devices"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	LogPath     string            `json:"log_path"`
	Stdin       bool              `json:"stdin"`
	StdinOnce   bool              `json:"stdin_once"`
	TTY         bool              `json:"tty"`
	Linux       *struct {
		Resources       *resourcesRecord `json:"resources"`
		SecurityContext *securityRecord  `json:"security_context"`
	} `json:"linux"`
	Windows    json.RawMessage `json:"windows"`
	CDIDevices []struct {
		Name string `json:"name"`
	} `json:"CDI_devices"`
	StopSignal int32 `json:"stop_signal"`
}

type imageRecord struct {
	Image              string            `json:"image"`
	Annotations        map[string]string `json:"annotations"`
	UserSpecifiedImage string            `json:"user_specified_image"`
	RuntimeHandler     string            `json:"runtime_handler"`
	ImageRef           string            `json:"image_ref"`
}

type mountRecord struct {
	ContainerPath     string       `json:"container_path"`
	HostPath          string       `json:"host_path"`
	Readonly          bool         `json:"readonly"`
	SELinuxRelabel    bool         `json:"selinux_relabel"`
	Propagation       int32        `json:"propagation"`
	UIDMappings       []idRecord   `json:"uidMappings"`
	GIDMappings       []idRecord   `json:"gidMappings"`
	RecursiveReadOnly bool         `json:"recursive_read_only"`
	Image             *imageRecord `json:"image"`
	ImageSubPath      string       `json:"image_sub_path"`
	MountOptions      []string     `json:"mount_options"`
}

type idRecord struct {
	HostID      uint32 `json:"host_id"`
	ContainerID uint32 `json:"container_id"`
	Length      uint32 `json:"length"`
}

type deviceRecord struct {
	ContainerPath string `json:"container_path"`
	HostPath      string `json:"host_path"`
	Permissions   string `json:"permissions"`
}

type resourcesRecord struct {
	CPUPeriod     int64  `json:"cpu_period"`
	CPUQuota      int64  `json:"cpu_quota"`
	CPUShares     int64  `json:"cpu_shares"`
	MemoryLimit   int64  `json:"memory_limit_in_bytes"`
	OOMScoreAdj   int64  `json:"oom_score_adj"`
	CpusetCPUs    string `json:"cpuset_cpus"`
	CpusetMems    string `json:"cpuset_mems"`
	HugepageLimit []struct {
		PageSize string `json:"page_size"`
		Limit    uint64 `json:"limit"`
	} `json:"hugepage_limits"`
	Unified   map[string]string `json:"unified"`
	SwapLimit int64             `json:"memory_swap_limit_in_bytes"`
}

// securityRecord is the security context of a sandbox or of a container. Some fields only a container has.
type securityRecord struct {
	Capabilities *struct {
		Add     []string `json:"add_capabilities"`
		Drop    []string `json:"drop_capabilities"`
		Ambient []string `json:"add_ambient_capabilities"`
	} `json:"capabilities"`
	Privileged               bool              `json:"privileged"`
	NamespaceOptions         *namespacesRecord `json:"namespace_options"`
	SELinuxOptions           *selinuxRecord    `json:"selinux_options"`
	RunAsUser                *int64Record      `json:"run_as_user"`
	RunAsGroup               *int64Record      `json:"run_as_group"`
	RunAsUsername            string            `json:"run_as_username"`
	ReadonlyRootfs           bool              `json:"readonly_rootfs"`
	SupplementalGroups       []int64           `json:"supplemental_groups"`
	SupplementalGroupsPolicy int32             `json:"supplemental_groups_policy"`
	NoNewPrivs               bool              `json:"no_new_privs"`
	MaskedPaths              []string          `json:"masked_paths"`
	ReadonlyPaths            []string          `json:"readonly_paths"`
	Seccomp                  *profileRecord    `json:"seccomp"`
	AppArmor                 *profileRecord    `json:"apparmor"`
	AppArmorProfile          string            `json:"apparmor_profile"`
	SeccompProfilePath       string            `json:"seccomp_profile_path"`
}

type namespacesRecord struct {
	Network  int32  `json:"network"`
	PID      int32  `json:"pid"`
	IPC      int32  `json:"ipc"`
	TargetID string `json:"target_id"`
	User     *struct {
		Mode int32      `json:"mode"`
		UIDs []idRecord `json:"uids"`
		GIDs []idRecord `json:"gids"`
	} `json:"userns_options"`
}

type selinuxRecord struct {
	User  string `json:"user"`
	Role  string `json:"role"`
	Type  string `json:"type"`
	Level string `json:"level"`
}

type profileRecord struct {
	Type         int32  `json:"profile_type"`
	LocalhostRef string `json:"localhost_ref"`
}

type int64Record struct {
	Value int64 `json:"value"`
}

// decode reads a recorded configuration.
func decode(config json.RawMessage, into any) error {
	if len(config) > maxConfig {
		return fmt.Errorf("its configuration has %d bytes: want at most %d", len(config), maxConfig)
	}
	d := json.NewDecoder(bytes.NewReader(config))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("decode its configuration: %w", err)
	}
	return nil
}
