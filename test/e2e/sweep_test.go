package e2e

import (
	"context"
	"fmt"
	"os"
	"testing"

	"diapause.dev/storage"
	"diapause.dev/test/bed"
)

// TestOrphan has a PodSnapshot go by force, without its finalizer, when its node knows nothing of it any
// more. What it leaves in the object store is swept when it is old enough, and nothing else is.
func TestOrphan(t *testing.T) {
	w := begin(t)
	n := w.Node(0)
	p := w.run(w.pod("web", on(n)))
	before := w.life(p)
	orphan, named := w.checkpoint(p).name, w.checkpoint(p).name
	w.replicated(orphan)
	w.replicated(named)
	w.forgetful(n, func() {
		s := w.snapshot(orphan)
		s.Finalizers = nil
		w.must(w.client.Update(w.ctx, s))
		w.must(w.client.Delete(w.ctx, s))
		w.awaitGone(s)
	})
	store := w.store()
	m, err := store.Manifest(w.ctx, w.key(named))
	w.must(err)
	if ok, err := store.Has(w.ctx, w.key(orphan)); err != nil || !ok {
		t.Fatalf("what nobody knows of is stored: %v, %v", ok, err)
	}

	w.Cleanup(func() { w.change(context.Background(), "rollout", "undo", "deployment/diapause-controller") })
	w.change(w.ctx, "patch", "deployment/diapause-controller", "--type=json", `--patch=[{"op": "add", `+
		`"path": "/spec/template/spec/containers/0/args/-", "value": "--orphan-age=2s"}]`)
	w.eventually("the orphan is swept", func() error {
		ok, err := store.Has(w.ctx, w.key(orphan))
		if err == nil && ok {
			err = fmt.Errorf("%s is stored", orphan)
		}
		return err
	})
	w.must(store.Verify(w.ctx, m, storage.VerifyOptions{ReadData: true}))
	w.remove("web")
	w.restored(w.run(w.pod("web", from(named))), named, before)
}

// forgetful stops the agent of a node, takes its records away, calls do, and has it started again.
func (w *world) forgetful(n *bed.Node, do func()) {
	w.Helper()
	w.signalAgent(n, "-STOP")
	for _, dir := range []string{"journal", "kube"} {
		w.must(os.RemoveAll(n.Path("/var/lib/diapause/" + dir)))
	}
	do()
	w.killAgent(n)
}
