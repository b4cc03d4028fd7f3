package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/test/images"
	"diapause.dev/test/tools"
)

// Images of a later agent, and of one with another runsc besides.
const (
	laterAgent = "localhost/diapause-agent:2"
	laterRunsc = "localhost/diapause-agent:3"
)

// TestUpgrade puts a new agent in the place of the old one while requests are under way, and then a
// new runsc, under which old snapshots are refused.
func TestUpgrade(t *testing.T) {
	w := begin(t)
	w.Cleanup(func() { w.upgrade(context.Background(), images.Agent) })
	p := w.run(w.pod("web"))
	before := w.life(p)

	w.must(w.importAgent(w.ctx, laterAgent, nil))
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.upgrade(w.ctx, laterAgent)
	}()
	s := w.keepAsking(p, done)
	w.moves(p)
	w.remove("web")
	p = w.run(w.pod("web"))
	w.restored(p, s, before)
	w.replicated(s)

	w.must(w.importAgent(w.ctx, laterRunsc, map[string]string{tools.RunscFast: w.otherRunsc()}))
	w.upgrade(w.ctx, laterRunsc)
	w.moves(p)
	w.keptOld(p)
	w.remove("web")
	p = w.run(w.pod("web", from(s)))
	w.cold(p, before, "runsc version")
	now := w.life(p)
	later := w.checkpoint(p)
	w.remove("web")
	w.restored(w.run(w.pod("web")), later.name, now)

	w.upgrade(w.ctx, images.Agent)
	w.remove("web")
	w.restored(w.run(w.pod("web", from(s))), s, before)
}

// keepAsking has a pod checkpointed again and again until done. Every trigger has to end. It returns
// the newest snapshot.
func (w *world) keepAsking(p *ready, done <-chan struct{}) (newest string) {
	w.Helper()
	for i := 0; ; i++ {
		name, err := w.outcome(w.ctx, w.trigger(fmt.Sprintf("asked-%d", i), p.Name), func() {})
		switch {
		case errors.Is(err, errFailed):
			w.Logf("while agents were replaced: %v", err)
		case err != nil:
			w.Fatal(err)
		default:
			newest = name
			w.outlast(snapshotted{name: name})
		}
		select {
		case <-done:
			if newest == "" {
				w.Fatal("no trigger was Complete")
			}
			return newest
		default:
		}
	}
}

// upgrade has all agents and controllers run that image.
func (w *world) upgrade(ctx context.Context, image string) {
	_, err := w.Kubectl(ctx, "--namespace="+system, "set", "image", "daemonset/diapause-agent", "install="+image,
		"agent="+image)
	if err != nil {
		w.Error(err)
	}
	w.change(ctx, "set", "image", "deployment/diapause-controller", "controller="+image)
}

// change has kubectl change the DaemonSet or the Deployment, and returns when all agents and controllers are like
// that.
func (w *world) change(ctx context.Context, args ...string) {
	_, err := w.Kubectl(ctx, append([]string{"--namespace=" + system}, args...)...)
	if err := errors.Join(err, w.rollout(ctx)); err != nil {
		w.Error(err)
	}
}

// otherRunsc makes a runsc that differs from the one of the tests in its version alone.
func (w *world) otherRunsc() string {
	w.Helper()
	runsc := w.Bin.Path("runsc")
	out, err := exec.CommandContext(w.ctx, runsc, "--version").Output()
	w.must(err)
	version := strings.TrimPrefix(strings.SplitN(string(out), "\n", 2)[0], "runsc version ")
	data, err := os.ReadFile(runsc)
	w.must(err)
	other := version[:len(version)-1] + "~"
	if !bytes.Contains(data, []byte(version)) || other == version {
		w.Fatalf("version %q is not in runsc", version)
	}
	path := filepath.Join(w.TempDir(), "runsc")
	w.must(os.WriteFile(path, bytes.ReplaceAll(data, []byte(version), []byte(other)), 0o755))
	return path
}

// keptOld has a pod checkpointed whose sandbox is older than the node's runsc: the trigger ends, and
// a snapshot that says it is Ready can be restored or is refused for its version.
func (w *world) keptOld(p *ready) {
	w.Helper()
	before := w.life(p)
	name, err := w.outcome(w.ctx, w.trigger("old-sandbox", p.Name), func() {})
	w.Logf("checkpoint of a sandbox of the old runsc: %q, %v", name, err)
	w.moves(p)
	if errors.Is(err, errFailed) {
		return
	}
	w.must(err)
	w.remove(p.Name)
	again := w.run(w.pod(p.Name, from(name)))
	if condition(again.Pod, podsnapshotv1.ConditionPodRestored).Status == corev1.ConditionTrue {
		w.restored(again, name, before)
	} else {
		w.cold(again, before, "version")
	}
}
