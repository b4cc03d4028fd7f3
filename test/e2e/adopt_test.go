package e2e

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/test/bed"
	"diapause.dev/test/pages"
)

const adoptFile = "docs/operations/adopt.md"

// TestAdopt: a new cluster takes over the snapshots in the bucket of an old one, by the program. While the old one's
// controller lives it is refused. A pod of the new cluster is restored from what was taken over, and the new controller
// removes its data. The new cluster is the old one with other identities, and without its PodSnapshots: all that tells
// clusters apart are the UIDs of their namespaces. The old controller's last sign of life is made older than it is.
func TestAdopt(t *testing.T) {
	w := begin(t)
	w.must(w.left())
	p := w.run(w.pod("web", on(w.Node(0))))
	before := w.life(p)
	taken := w.checkpoint(p).name
	w.replicated(taken)
	w.remove("web")

	store := w.store()
	old, home := w.identity(metav1.NamespaceSystem), w.identity(w.namespace)
	w.Cleanup(func() { w.returnTo(old) })
	w.change(w.ctx, "rollout", "restart", "deployment/diapause-controller") // which makes it leave a sign of life
	w.eventually("the old controller's sign of life", func() error {
		note, err := store.Note(w.ctx, old+".alive")
		if err == nil && note == nil {
			err = errNotYet
		}
		return err
	})
	w.becomes(string(uuid.NewUUID()), taken)

	const list = "diapause-agent adopt --kubeconfig=$HOME/.kube/config --store=gs://my-bucket/snapshots " +
		"--trusted-keys=trusted.pem"
	look := pages.Text(t, "../..", adoptFile, list+"\n")
	adopt := pages.Text(t, "../..", adoptFile, list+" --from", "UID", old)
	w.adopts("", look, "1 to adopt", "take over with --from="+old, "Nothing was changed")
	w.adopts("refused", adopt, "the old cluster's controller may be alive")
	w.adopts("", strings.TrimSpace(look)+" --from="+old, taken+": would be adopted", "It would be refused now")
	if all := w.snapshots(); len(all) > 0 {
		t.Errorf("while the old controller lives: %+v", all)
	}
	w.scaleController(0) // a standby of the old cluster may become leader as long as it lives, and leave a sign
	w.must(store.SetNote(w.ctx, old+".alive", []byte(`{"time": "2026-01-01T00:00:00Z"}`)))
	w.scaleController(2) // the new cluster's
	for range 2 {
		w.adopts("", adopt, taken+": adopted, policy policy", "1 to adopt")
	}
	w.replicated(taken)
	s := w.snapshot(taken)
	if from := s.Annotations[podsnapshotv1.AnnotationAdoptedFrom]; from != old+"/"+home {
		t.Errorf("it was taken over from %q, want %s/%s", from, old, home)
	}
	w.restored(w.run(w.pod("web", on(w.Node(1)))), taken, before)
	w.remove("web")
	w.must(w.client.Delete(w.ctx, s))
	w.awaitGone(s)
	if there, err := store.Has(w.ctx, w.key(taken)); err != nil || there {
		t.Errorf("its PodSnapshot was deleted, and its data is there: %v, %v", there, err)
	}
}

// adopts runs a command of the page as an administrator of the new cluster, in the test's namespace, and checks what it
// says. How is empty if it must succeed. Here nothing is signed.
func (w *world) adopts(how, command string, says ...string) {
	w.Helper()
	command = strings.NewReplacer("diapause-agent", w.Bin.Path("diapause-agent"), "$HOME/.kube/config", w.Kubeconfig,
		"gs://my-bucket/snapshots", "gs://"+bucket+"/e2e", "--trusted-keys=trusted.pem",
		"--accept-unsigned --in="+w.namespace).Replace(command)
	cmd := exec.CommandContext(w.ctx, "bash", "-c", command)
	cmd.Env = append(os.Environ(), "STORAGE_EMULATOR_HOST="+w.gcs.Address)
	out, err := cmd.CombinedOutput()
	if (err == nil) != (how == "") {
		w.Fatalf("%s: %v, want %s\n%s", command, err, cmp.Or(how, "success"), out)
	}
	for _, s := range says {
		if !strings.Contains(string(out), s) {
			w.Errorf("%s does not say %q:\n%s", command, s, out)
		}
	}
}

// becomes makes the cluster another one, which knows nothing of a PodSnapshot.
func (w *world) becomes(uid, snapshot string) {
	w.Helper()
	for _, n := range w.Nodes() {
		w.signalAgent(n, "-STOP")
		for _, dir := range []string{"journal", "kube"} {
			w.must(os.RemoveAll(n.Path("/var/lib/diapause/" + dir)))
		}
	}
	s := w.snapshot(snapshot)
	s.Finalizers = nil
	w.must(w.client.Update(w.ctx, s))
	w.must(w.client.Delete(w.ctx, s))
	w.awaitGone(s)
	w.must(w.setIdentity(w.ctx, metav1.NamespaceSystem, uid))
	w.must(w.setIdentity(w.ctx, w.namespace, string(uuid.NewUUID())))
	for _, n := range w.Nodes() {
		w.killAgent(n)
	}
}

// returnTo makes the cluster the old one again.
func (w *world) returnTo(old string) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	w.ctx = ctx
	if err := errors.Join(w.setIdentity(ctx, metav1.NamespaceSystem, old),
		w.store().SetNote(ctx, old+".taken", []byte(`{}`))); err != nil {
		w.Error(err)
	}
	for _, n := range w.Nodes() {
		w.killAgent(n)
	}
	w.change(ctx, "scale", "--replicas=2", "deployment/diapause-controller")
	w.change(ctx, "rollout", "restart", "deployment/diapause-controller")
}

// scaleController has so many processes of the controller run, and returns once that is so.
func (w *world) scaleController(replicas int) {
	w.Helper()
	w.change(w.ctx, "scale", fmt.Sprintf("--replicas=%d", replicas), "deployment/diapause-controller")
	w.eventually(fmt.Sprintf("%d controllers", replicas), func() error {
		pods, err := w.Client.CoreV1().Pods(system).List(w.ctx, metav1.ListOptions{
			LabelSelector: "app.kubernetes.io/name=diapause-controller",
		})
		if err == nil && len(pods.Items) != replicas {
			err = fmt.Errorf("there are %d pods of the controller, want %d", len(pods.Items), replicas)
		}
		return err
	})
}

func (w *world) identity(namespace string) string {
	w.Helper()
	ns, err := w.Client.CoreV1().Namespaces().Get(w.ctx, namespace, metav1.GetOptions{})
	w.must(err)
	return string(ns.UID)
}

func post(ctx context.Context, url string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, res.Status)
	}
	return nil
}

// setIdentity gives a namespace another UID, in etcd.
func (w *world) setIdentity(ctx context.Context, namespace, uid string) error {
	ns, err := w.Client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	if err != nil {
		return err
	}
	ns.UID, ns.ResourceVersion = types.UID(uid), ""
	ns.APIVersion, ns.Kind = "v1", "Namespace"
	value, err := json.Marshal(ns)
	if err != nil {
		return err
	}
	put, err := json.Marshal(map[string][]byte{"key": []byte("/registry/namespaces/" + namespace), "value": value})
	if err != nil {
		return err
	}
	if err := post(ctx, bed.EtcdURL+"/v3/kv/put", put); err != nil {
		return err
	}
	return until(ctx, func() error { // the API server hears of it a little later
		ns, err := w.Client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		if err == nil && string(ns.UID) != uid {
			err = fmt.Errorf("namespace %s is still %s", namespace, ns.UID)
		}
		return err
	})
}
