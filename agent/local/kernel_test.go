package local

import (
	"strings"
	"testing"

	"github.com/containerd/cgroups/v3"
)

// TestDescribeKernel: doctor names the kernel and the version of cgroups, and what an older kernel cannot do.
func TestDescribeKernel(t *testing.T) {
	if got := describeKernel("6.12.1", cgroups.Unified, true); got != "Linux 6.12.1, cgroup v2" {
		t.Error(got)
	}
	old := describeKernel("6.1.0-13", cgroups.Legacy, false)
	if !strings.HasPrefix(old, "Linux 6.1.0-13, cgroup v1; attention: ") {
		t.Error(old)
	}
	got, err := checkKernel()
	if err != nil || !strings.HasPrefix(got, "Linux ") || !strings.Contains(got, ", cgroup v") {
		t.Errorf("%q, %v", got, err)
	}
}
