package bed_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"diapause.dev/test/bed"
)

// failing stands in for a test that has failed: it keeps what is logged.
type failing struct {
	*testing.T
	said []string
}

func (f *failing) Log(args ...any) { f.said = append(f.said, fmt.Sprint(args...)) }
func (f *failing) Errorf(format string, args ...any) {
	f.said = append(f.said, fmt.Sprintf(format, args...))
}

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

// TestShowDeaths: of the sandboxes that died since the test began, it is shown of what.
func TestShowDeaths(t *testing.T) {
	logs, began := t.TempDir(), time.Now()
	for pod, text := range map[string]string{"lives": "", "dies": "panic: a hole\n", "died": "panic: long ago\n"} {
		dir := filepath.Join(logs, "pods", pod)
		path := filepath.Join(dir, "gvisor_panic.log")
		err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(path, []byte(text), 0o600))
		if pod == "died" {
			err = errors.Join(err, os.Chtimes(path, began.Add(-time.Hour), began.Add(-time.Hour)))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	f := &failing{T: t}
	bed.ShowDeaths(f, began.Add(-time.Minute), logs)
	said := strings.Join(f.said, "\n")
	if !strings.Contains(said, "the sandbox of dies died") || !strings.Contains(said, "panic: a hole") ||
		strings.Contains(said, "lives") || strings.Contains(said, "long ago") {
		t.Errorf("it says %q", said)
	}
}
