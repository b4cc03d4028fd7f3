package bed_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"diapause.dev/test/bed"
	"diapause.dev/test/tools"
)

// holdVariable makes the test binary start a bed of its own and keep it.
const holdVariable = "BED_TEST_HOLD"

// hold starts a bed with a pod on each handler, freezes one of them, says the
// bed's name, and ends at the end of its standard input.
func hold() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := fill(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

func fill(ctx context.Context) error {
	b, err := bed.Start(ctx, bed.Options{})
	if err != nil {
		return err
	}
	for _, handler := range []string{bed.Diapause, bed.Runc} {
		pod, err := b.RunPod(ctx, bed.PodSpec{Name: handler, Handler: handler})
		if err != nil {
			return err
		}
		if handler == bed.Diapause {
			continue
		}
		out, err := exec.CommandContext(ctx, "ctr", "-n", "k8s.io", "tasks", "pause", pod.Containers[0].ID).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
	}
	fmt.Println(strings.TrimPrefix(b.CgroupParent, "/"))
	return nil
}

// holder is a running hold.
type holder struct {
	*exec.Cmd
	stdin io.Closer
	bed   string
}

// startHolder starts hold in a process of its own, inside this bed.
func startHolder(t *testing.T, b *bed.Bed) holder {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), holdVariable+"=1", tools.Prebuilt+"="+b.Bin.Dir)
	cmd.Stderr = os.Stderr
	stdin, errIn := cmd.StdinPipe()
	stdout, errOut := cmd.StdoutPipe()
	if err := errors.Join(errIn, errOut); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	name, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("the other bed has not started: %v", err)
	}
	return holder{cmd, stdin, strings.TrimSpace(name)}
}

// TestTwoBeds runs a second bed beside this one, with the same paths and
// addresses, and ends it in every way there is: nothing of it is left, and this
// one goes on.
func TestTwoBeds(t *testing.T) {
	ctx, b := start(t)
	pod, err := b.RunPod(ctx, bed.PodSpec{Name: "first"})
	if err != nil {
		t.Fatal(err)
	}
	ends := map[string]func(holder) error{
		"by itself":    func(h holder) error { return h.stdin.Close() },
		"by interrupt": func(h holder) error { return h.Process.Signal(os.Interrupt) },
		"by SIGTERM":   func(h holder) error { return h.Process.Signal(syscall.SIGTERM) },
		"by SIGKILL":   func(h holder) error { return h.Process.Kill() },
	}
	for how, end := range ends {
		t.Run(how, func(t *testing.T) {
			h := startHolder(t, b)
			if len(remains(t, h.bed)) == 0 {
				t.Fatalf("nothing of the bed %s is to be seen while it is there", h.bed)
			}
			if err := end(h); err != nil {
				t.Fatal(err)
			}
			h.Wait() // its status says only how it was ended
			eventually(ctx, t, func() error {
				if left := remains(t, h.bed); len(left) > 0 {
					return fmt.Errorf("left of the bed %s: %q", h.bed, left)
				}
				return nil
			})
		})
	}
	if _, code, err := b.Exec(ctx, pod.Containers[0].ID, "/bin/true"); err != nil || code != 0 {
		t.Errorf("exec in the first bed: status %d, %v", code, err)
	}
}

// remains lists what there is of the bed of that name: cgroups, its scratch
// directory, and processes that see its mounts.
func remains(t *testing.T, name string) []string {
	t.Helper()
	var left []string
	for _, pattern := range []string{
		"/sys/fs/cgroup/" + name, "/sys/fs/cgroup/*/" + name, "../../.cache/run/" + name,
	} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, found...)
	}
	mounts, err := filepath.Glob("/proc/[0-9]*/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range mounts {
		data, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(data), name) {
			left = append(left, path)
		}
	}
	return left
}
