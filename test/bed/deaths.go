package bed

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// shownDeaths is how many of the kernel's messages are shown, and how many panics.
	shownDeaths = 5
	// shownPanic bounds how much of a panic is shown, in bytes.
	shownPanic = 2000
	// kernelLog is how many bytes of the kernel's log are searched.
	kernelLog = 256 << 10
)

// death matches a message of the kernel about a process that it has ended.
var death = regexp.MustCompile(`(?i)out of memory|oom-kill|killed process|segfault|general protection`)

// ShowDeaths reports, for a test that has failed, which sandboxes Go's runtime has ended since began, and which
// processes of the machine the kernel has. Logs are the nodes' directories of logs. It shows nothing if there was none.
func ShowDeaths(t testing.TB, began time.Time, logs ...string) {
	t.Helper()
	var all []string
	for _, dir := range logs {
		some, _ := filepath.Glob(filepath.Join(dir, "pods", "*", "gvisor_panic.log"))
		all = append(all, some...)
	}
	shown := 0
	for _, path := range all {
		fi, err := os.Stat(path)
		if err != nil || fi.Size() == 0 || fi.ModTime().Before(began) || shown == shownDeaths {
			continue
		}
		shown++
		text, err := os.ReadFile(path)
		t.Errorf("the sandbox of %s died (%v):\n%.*s", filepath.Base(filepath.Dir(path)), err, shownPanic, text)
	}
	if text := kernelDeaths(); text != "" {
		t.Errorf("the last processes that the kernel has ended on this machine:\n%s", text)
	}
}

// kernelDeaths returns the last of the kernel's messages about processes that it has ended, or why they cannot be read.
func kernelDeaths() string {
	buf := make([]byte, kernelLog)
	n, err := unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, buf)
	if err != nil {
		return fmt.Sprintf("the kernel's log: %v", err)
	}
	var lines []string
	for line := range bytes.Lines(buf[:n]) {
		if death.Match(line) {
			lines = append(lines, fmt.Sprintf("%.*s", shownBytes, bytes.TrimSpace(line)))
		}
	}
	return strings.Join(lines[max(0, len(lines)-shownDeaths):], "\n")
}
