package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"diapause.dev/test/images"
)

// plugin runs the plugin, as kubectl does. It returns what the plugin prints, what it says beside that, and its exit
// code.
func (w *world) plugin(args ...string) (out, said string, code int) {
	w.Helper()
	kubectl := w.Bin.Path("kubectl")
	args = append(append([]string{"diapause"}, args...), "--kubeconfig="+w.Kubeconfig, "--namespace="+w.namespace)
	cmd := exec.CommandContext(w.ctx, kubectl, args...)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(w.Bin.Path("kubectl-diapause"))+":"+os.Getenv("PATH"))
	var o, e strings.Builder
	cmd.Stdout, cmd.Stderr = &o, &e
	err := cmd.Run()
	if failed := new(exec.ExitError); err != nil && !errors.As(err, &failed) {
		w.Fatal(err)
	}
	return o.String(), e.String(), cmd.ProcessState.ExitCode()
}

// asks runs the plugin and returns what it prints.
func (w *world) asks(args ...string) string {
	w.Helper()
	out, said, code := w.plugin(args...)
	if code != 0 {
		w.Fatalf("kubectl diapause %s: exit code %d: %s%s", strings.Join(args, " "), code, out, said)
	}
	return out
}

// TestPlugin: with a kubeconfig alone, a user checkpoints a pod, puts it to sleep and wakes it, sees that, and deletes
// the snapshot.
func TestPlugin(t *testing.T) {
	t.Parallel()
	w := begin(t)
	p := w.run(w.pod("web"))
	before := w.life(p)
	snapshot := strings.TrimSpace(w.asks("checkpoint", "web"))
	w.replicated(snapshot)
	row := func(list, object string) string {
		for line := range strings.Lines(list) {
			if strings.HasPrefix(line, object+" ") {
				return line
			}
		}
		return ""
	}
	if r := row(w.asks("ls"), snapshot); !strings.Contains(r, " web ") || !strings.Contains(r, "checkpoint") {
		t.Errorf("the snapshot is listed as %q", r)
	}
	if out := w.kubectl("get", "podsnapshotmanualtriggers", "--output=name"); out != "" {
		t.Errorf("these triggers are left: %s", out)
	}

	for try := 0; ; try++ { // whoever looks at a pod may send packets
		out, said, code := w.plugin("sleep", "web")
		if code == 0 {
			break
		}
		if try == mostTries || !strings.Contains(said, "packet") {
			t.Fatalf("it does not sleep: %s%s", out, said)
		}
	}
	if r := row(w.asks("pods"), "web"); !strings.Contains(r, "Asleep") {
		t.Errorf("the pod that sleeps is listed as %q", r)
	}
	if out := w.asks("sleep", "web"); !strings.Contains(out, "Asleep") {
		t.Errorf("a pod that sleeps already: %s", out)
	}
	w.asks("wake", "web")
	if r := row(w.asks("pods", "--all-namespaces"), w.namespace); !strings.Contains(r, "Awake") {
		t.Errorf("the pod that is awake is listed as %q", r)
	}
	w.whole(p, before)

	w.asks("rm", snapshot)
	if out := w.asks("ls"); strings.Contains(out, snapshot) {
		t.Errorf("a deleted snapshot is listed:\n%s", out)
	}
	w.apply(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: ended, namespace: %s}, spec: {restartPolicy: Never,
		containers: [{name: c, image: %q, command: ["true"]}]}}`, w.namespace, images.Busybox))
	w.kubectl("wait", "pod/ended", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=60s")
	for _, doing := range []string{"sleep", "wake"} {
		if out, said, code := w.plugin(doing, "ended"); code != 1 || !strings.Contains(said, "it has ended (Succeeded)") {
			t.Errorf("%s of a pod that has ended: exit code %d: %s%s", doing, code, out, said)
		}
	}
	for _, args := range [][]string{{"checkpoint", "nobody"}, {"sleep", "nobody"}, {"rm", snapshot}} {
		if out, said, code := w.plugin(args...); code != 3 || !strings.Contains(said, args[1]) {
			t.Errorf("%q of what is not there: exit code %d: %s%s", args, code, out, said)
		}
	}
}
