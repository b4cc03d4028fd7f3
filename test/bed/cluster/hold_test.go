package cluster

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"diapause.dev/test/bed"
	"diapause.dev/test/images"
	"diapause.dev/test/tools"
)

// holdVariable makes the test binary start a bed of its own, with a cluster in it, and keep it.
const holdVariable = "CLUSTER_TEST_HOLD"

func TestMain(m *testing.M) {
	if os.Getenv(holdVariable) != "" {
		bed.Enter(tools.Kubernetes)
		if err := hold(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	bed.Main(m, tools.Kubernetes)
}

// hold starts a cluster with a pod in gVisor, says the bed's cgroup, and returns at the end of
// standard input.
func hold() error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	c, err := bed.StartCluster(ctx, bed.ClusterOptions{})
	if err != nil {
		return err
	}
	pod := `{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {runtimeClassName: ` + bed.Diapause +
		`, containers: [{name: web, image: "` + images.Busybox + `", command: [sleep, infinity]}]}}`
	if err := c.Apply(ctx, pod); err != nil {
		return err
	}
	if _, err := c.Kubectl(ctx, "wait", "--for=condition=Ready", "--timeout=60s", "pod/web"); err != nil {
		return err
	}
	fmt.Println(filepath.Dir(c.Node(0).CgroupParent))
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// TestBedKilled shows that of a bed with a cluster, whose program is killed, nothing is left.
func TestBedKilled(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = append(os.Environ(), holdVariable+"=1", tools.Prebuilt+"="+programs(t))
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil { // which stays open
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	cgroup, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the other bed has not started: %v", err)
	}
	cgroup = strings.TrimSpace(cgroup)
	if len(remains(t, cgroup)) == 0 {
		t.Fatalf("nothing of %s is to be seen while it is there", cgroup)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait() // says that it was killed
	eventually(ctx, t, func() error {
		if left := remains(t, cgroup); len(left) > 0 {
			return fmt.Errorf("left of %s: %q", cgroup, left)
		}
		return nil
	})
}

// programs is the directory of this bed's programs.
func programs(t *testing.T) string {
	t.Helper()
	kubelet, err := exec.LookPath("kubelet")
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Dir(kubelet)
}

// remains lists what there is of a bed or a node with that cgroup: the cgroup, and processes
// that see its mounts.
func remains(t *testing.T, cgroup string) []string {
	t.Helper()
	left, err := filepath.Glob("/sys/fs/cgroup/*" + cgroup)
	if err != nil {
		t.Fatal(err)
	}
	processes, err := filepath.Glob("/proc/[0-9]*/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range processes {
		if data, err := os.ReadFile(path); err == nil && strings.Contains(string(data), cgroup+"/") {
			left = append(left, path)
		}
	}
	return left
}
