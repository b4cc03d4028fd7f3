package bed

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// cpuPeriod is the period of limits of processor time, in microseconds: the kubelet's default.
const cpuPeriod = 100_000

// limitCPU gives a cgroup a limit of processor time, in thousandths of a processor, unless that is 0.
func limitCPU(path string, limit int) error {
	if limit == 0 {
		return nil
	}
	return setCPU(path, limit)
}

func setCPU(path string, limit int) error {
	if err := os.WriteFile(cpuFile(path), []byte(CPUQuota(limit)), 0); err != nil {
		return fmt.Errorf("bed: limit processor time: %w", err)
	}
	return nil
}

// CPUQuota returns what PodCPULimit returns of a pod with that limit, in thousandths of a processor.
func CPUQuota(limit int) string {
	quota := fmt.Sprint(limit * cpuPeriod / 1000)
	if _, unified := memoryTop(); unified {
		quota += fmt.Sprint(" ", cpuPeriod)
	}
	return quota
}

// SetPodCPULimit sets a pod's limit of processor time, as a kubelet does, in thousandths of a processor.
func (b *Bed) SetPodCPULimit(p *Pod, limit int) error {
	return setCPU(podCgroup(b.CgroupParent, p.UID), limit)
}

// PodCPULimit returns what the kernel says of a pod's limit of processor time: with cgroup v1 microseconds in each
// period, or -1; with v2 these or max, and the period.
func (b *Bed) PodCPULimit(p *Pod) (string, error) {
	text, err := os.ReadFile(cpuFile(podCgroup(b.CgroupParent, p.UID)))
	return strings.TrimSpace(string(text)), err
}

// SetContainerCPULimit has containerd change a container's limit of processor time, as a kubelet does, in thousandths
// of a processor. gVisor has only the pod's limit in force.
func (b *Bed) SetContainerCPULimit(ctx context.Context, container string, limit int) error {
	_, err := b.Runtime.UpdateContainerResources(ctx, &cri.UpdateContainerResourcesRequest{
		ContainerId: container,
		Linux:       &cri.LinuxContainerResources{CpuPeriod: cpuPeriod, CpuQuota: int64(limit * cpuPeriod / 1000)},
	})
	return err
}

// cpuFile returns the path of the file with a cgroup's limit of processor time.
func cpuFile(path string) string {
	if _, unified := memoryTop(); unified {
		return filepath.Join(cgroupRoot, path, "cpu.max")
	}
	return filepath.Join(cgroupRoot, "cpu", path, "cpu.cfs_quota_us")
}
