package local

import (
	"strings"
	"testing"
)

// TestDescribeAsleep: doctor says how many pods another gVisor would cost.
func TestDescribeAsleep(t *testing.T) {
	if got := describeAsleep(0, "1"); got != "none" {
		t.Error(got)
	}
	if got := describeAsleep(3, "1"); !strings.HasPrefix(got, "3: only gVisor 1 can wake them") {
		t.Error(got)
	}
}
