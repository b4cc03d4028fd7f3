package runsc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// shim returns the process id of a sandbox's shim. The shim is the parent of the sentry process pid: it adopts
// what runsc starts.
func shim(pid int) (int, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("shim of sandbox process %d: %w", pid, err)
	}
	_, rest, _ := bytes.Cut(status, []byte("\nPPid:"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	n, err := strconv.Atoi(string(bytes.TrimSpace(line)))
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("shim of sandbox process %d: its parent is %.20q", pid, line)
	}
	return n, nil
}

// NodeRoot returns a path to the root of the node's file system, as the sandbox's shim sees it. Pid is the
// sandbox's sentry process.
func NodeRoot(pid int) (string, error) {
	n, err := shim(pid)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("/proc/%d/root", n), nil
}

// Processes returns the directories in /proc of a sandbox's shim, and of the shim's children: the sentry and the gofers
// are among them. Pid is the sentry process.
func Processes(pid int) (parent string, children []string, err error) {
	n, err := shim(pid)
	if err != nil {
		return "", nil, err
	}
	parent = fmt.Sprintf("/proc/%d", n)
	tasks, err := filepath.Glob(parent + "/task/*/children")
	for _, task := range tasks {
		data, _ := os.ReadFile(task) // a thread may have ended; others adopt what it has started
		for _, child := range strings.Fields(string(data)) {
			children = append(children, "/proc/"+child)
		}
	}
	return parent, children, err
}

// Prefix and key of annotations in a sandbox's spec. By those with hintPrefix, gVisor's shim tells runsc that it
// keeps a volume inside the sandbox (runsc/boot/mount_hints.go). In annotationSandbox, containerd names the
// sandbox.
const (
	hintPrefix        = "dev.gvisor.spec.mount."
	annotationSandbox = "io.kubernetes.cri.sandbox-id"
)

// Inside returns the volumes that a sandbox keeps inside and not on the node, by their paths on the node. Pid is
// its sentry process. Inside reads what the shim has made of the pod's annotations, not these themselves: the
// shim drops a request for a volume that held files already.
func Inside(pid int, sandbox string) (map[string]bool, error) {
	n, err := shim(pid)
	if err != nil {
		return nil, err
	}
	// A shim runs in the directory of its bundle.
	f, err := os.Open(fmt.Sprintf("/proc/%d/cwd/config.json", n))
	if err != nil {
		return nil, fmt.Errorf("spec of sandbox %s: %w", sandbox, err)
	}
	defer f.Close()
	var spec struct{ Annotations map[string]string }
	if err := json.NewDecoder(f).Decode(&spec); err != nil {
		return nil, fmt.Errorf("spec of sandbox %s: %w", sandbox, err)
	}
	if id := spec.Annotations[annotationSandbox]; id != sandbox {
		return nil, fmt.Errorf("spec of sandbox %s: process %d, its parent, is the shim of %.80q", sandbox, n, id)
	}
	return inside(spec.Annotations), nil
}

func inside(annotations map[string]string) map[string]bool {
	paths := make(map[string]bool)
	for key, kind := range annotations {
		name, ok := strings.CutSuffix(strings.TrimPrefix(key, hintPrefix), ".type")
		if !ok || !strings.HasPrefix(key, hintPrefix) || kind != "tmpfs" {
			continue
		}
		share := annotations[hintPrefix+name+".share"]
		if path := annotations[hintPrefix+name+".source"]; path != "" && (share == "pod" || share == "container") {
			paths[path] = true
		}
	}
	return paths
}
