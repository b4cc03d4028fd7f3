package bed_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"diapause.dev/test/bed"
)

// failing stands in for a test that has failed: it keeps what is logged.
type failing struct {
	*testing.T
	said []string
}

func (f *failing) Log(args ...any) { f.said = append(f.said, fmt.Sprint(args...)) }

// TestSaveLog saves a log whole, and shows its last warnings and errors alone.
func TestSaveLog(t *testing.T) {
	var log strings.Builder
	for i := range 40 {
		fmt.Fprintf(&log, "time=t level=WARN msg=%q\ntime=t level=DEBUG msg=quiet\n", fmt.Sprint("slow ", i, "."))
	}
	log.WriteString(`{"level":"error","msg":"of the shim"}` + "\n" + `level=warning msg="of containerd"` + "\n" +
		"E1127 14:00:00.000000 1 kubelet.go:1] of the kubelet\nI1127 14:00:00.000000 1 kubelet.go:1] fine\n")
	f := &failing{T: t}
	bed.SaveLog(f, "of/agent", log.String())
	said := strings.Join(f.said, "\n")
	found := regexp.MustCompile(`is in (\S+/of-agent\.log);`).FindStringSubmatch(said)
	if found == nil {
		t.Fatalf("no path in %q", said)
	}
	if data, err := os.ReadFile(found[1]); err != nil || string(data) != log.String() {
		t.Errorf("saved is %.100q, %v", data, err)
	}
	for _, want := range []string{"slow 39.", "slow 28.", "of the shim", "of containerd", "of the kubelet"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is not shown", want)
		}
	}
	for _, not := range []string{"slow 27.", "quiet", "fine"} {
		if strings.Contains(said, not) {
			t.Errorf("%q is shown", not)
		}
	}
}
