package helm

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"diapause.dev/test/bed"
	"diapause.dev/test/images"
	"diapause.dev/test/pages"
)

// later is the image that an upgrade brings.
const later = "localhost/diapause-agent:2"

// definitions are those that the chart has, and keeps.
var definitions = []string{
	"podsnapshots.podsnapshot.gke.io", "podsnapshotpolicies.podsnapshot.gke.io", "sleeppolicies.diapause.dev",
	"podsnapshotmanualtriggers.podsnapshot.gke.io", "podsnapshotstorageconfigs.podsnapshot.gke.io",
}

// TestRelease: the life of a release, in a namespace of the user's choice. It is installed and tried, upgraded while a
// pod sleeps, and not uninstalled before that pod is awake. The definitions and the snapshots stay.
func TestRelease(t *testing.T) {
	w := begin(t, "snapshots-of-ours")
	w.ready(func() {
		w.succeeds("install", "diapause", w.olderChart(), "--create-namespace", "--values="+w.values)
	})
	w.tries()
	life := w.sleeper()
	w.sleeps("before-upgrade")

	w.upgrades()
	w.asleep("True")
	w.wakes("after-upgrade", life)

	w.sleeps("before-uninstall")
	w.refused([]string{"uninstall", "diapause"}, "1 pods sleep", "default/web")
	w.succeeds("rollback", "diapause", "2") // Helm takes the release for one that is being uninstalled
	w.refused([]string{"upgrade", "diapause", chart, "--reset-then-reuse-values", "--set=uninstall=true"},
		"1 pods sleep", "default/web")
	w.rollout("daemonset/diapause-agent")
	w.asleep("True")
	w.wakes("refused", life)
	w.uninstalls()
}

// TestAdoption: Helm takes over what kubectl has installed. A pod that sleeps sleeps on, and wakes. Then the chart is
// installed once more, as docs/install/cluster.md says.
func TestAdoption(t *testing.T) {
	w := begin(t, "diapause-system")
	w.ready(func() { w.kubectl("apply", "--kustomize=../daemonset/overlay") })
	life := w.sleeper()
	w.sleeps("before-adoption")
	install := []string{"install", "diapause", chart, "--values=" + w.values}
	w.refused(install, "invalid ownership metadata")
	w.succeeds(append(install, "--take-ownership", "--force-conflicts")...)
	for _, name := range []string{"daemonset/diapause-agent", "deployment/diapause-controller"} {
		w.rollout(name)
	}
	w.asleep("True")
	w.wakes("after-adoption", life)
	w.uninstalls()
	w.ready(func() {
		w.bash(pages.Text(w, "../..", "docs/install/cluster.md", "helm install diapause charts/diapause",
			"REGISTRY", "localhost", "--set image.digest=sha256:…", "--values="+w.values))
	})
	w.tries()
}

// tries runs the chart's test. What it has made is gone afterwards, with its rights.
func (w *world) tries() {
	w.Helper()
	out := w.succeeds("test", "diapause", "--logs", "--timeout="+waitLimit.String())
	for _, want := range []string{"Succeeded", "was checkpointed", "was restored", "it sleeps", "it woke"} {
		if !strings.Contains(out, want) {
			w.Errorf("helm test does not say %q:\n%s", want, out)
		}
	}
	left := w.kubectl("get", "clusterrole,clusterrolebinding,podsnapshotstorageconfig,serviceaccount,role,rolebinding,"+
		"podsnapshots,podsnapshotpolicy,podsnapshotmanualtrigger,pod", "--all-namespaces", "--output=name")
	if strings.Contains(left, "diapause-test") || strings.Contains(left, "diapause-trial") {
		w.Errorf("left after helm test:\n%s", left)
	}
}

// olderChart returns a copy of the chart, of which a definition has a name that the chart no longer has.
func (w *world) olderChart() string {
	w.Helper()
	older := filepath.Join(w.TempDir(), "diapause")
	w.must(os.CopyFS(older, os.DirFS(chart)))
	definition := filepath.Join(older, "templates/crds/podsnapshot.gke.io_podsnapshotpolicies.yaml")
	text, err := os.ReadFile(definition)
	w.must(err)
	const singular = "    singular: podsnapshotpolicy\n"
	text = bytes.Replace(text, []byte(singular), []byte("    shortNames: [older]\n"+singular), 1)
	w.must(os.WriteFile(definition, text, 0o644))
	return older
}

// upgrades has the release run another image, and have the definitions of the chart.
func (w *world) upgrades() {
	w.Helper()
	w.importAgent(later)
	w.kubectl("get", "older")
	w.succeeds("upgrade", "diapause", chart, "--reset-then-reuse-values", "--set-string=image.tag=2")
	for _, name := range []string{"daemonset/diapause-agent", "deployment/diapause-controller"} {
		w.rollout(name)
		out := w.kubectl("--namespace="+w.namespace, "get", name,
			"--output=jsonpath={.spec.template.spec.containers[0].image}")
		if out != later {
			w.Errorf("%s runs %s, want %s", name, out, later)
		}
	}
	if out := w.kubectl("get", "crd", definitions[1], "--output=jsonpath={.spec.names.shortNames}"); out != "" {
		w.Errorf("the upgrade has left the older definition of PodSnapshotPolicies, with the name %s", out)
	}
}

// uninstalls does the steps of the chart's page. The pod that runs keeps the runtime on its node until it is deleted.
func (w *world) uninstalls() {
	w.Helper()
	snapshot := w.checkpoint()
	w.succeeds("upgrade", "diapause", chart, "--reset-then-reuse-values", "--set=uninstall=true")
	w.until("delete default/web first", "--namespace="+w.namespace, "logs", "daemonset/diapause-uninstall",
		"--container=uninstall")
	wait := w.Node(0).Containerd.Supervise(w.ctx)
	w.kubectl("delete", "pod", "web", "--wait")
	w.rollout("daemonset/diapause-uninstall")
	w.must(wait())
	w.installed(false)
	w.succeeds("uninstall", "diapause", "--wait")
	w.kubectl("get", "podsnapshot", snapshot)
	w.kubectl(append([]string{"get", "crd"}, definitions...)...)
	w.must(bed.Until(w.ctx, func() error { // pods end later than what they are of
		left, err := w.Kubectl(w.ctx, "--namespace="+w.namespace, "get", "all,serviceaccounts,roles", "--output=name")
		if err == nil && strings.Contains(left, "diapause") {
			err = fmt.Errorf("left after helm uninstall:\n%s", left)
		}
		return err
	}))
}

// web is a pod that may sleep, and what selects it.
const web = `
apiVersion: podsnapshot.gke.io/v1
kind: PodSnapshotStorageConfig
metadata: {name: local}
spec: {snapshotStorageConfig: {dir: {path: /var/lib/diapause/store}}}
---
apiVersion: podsnapshot.gke.io/v1
kind: PodSnapshotPolicy
metadata: {name: web, namespace: default}
spec:
  storageConfigName: local
  selector: {matchLabels: {app: web}}
  triggerConfig: {type: manual, postCheckpoint: resume}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default, labels: {app: web}}
spec:
  runtimeClassName: diapause
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: "%s", command: [sh, -c, "date +%%N > /tmp/born; exec sleep 100000"]}
`

// sleeper makes the pod, and returns what only it knows.
func (w *world) sleeper() string {
	w.Helper()
	w.must(w.Apply(w.ctx, fmt.Sprintf(web, images.Busybox)))
	w.kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout="+waitLimit.String())
	return w.kubectl("exec", "web", "--", "cat", "/tmp/born")
}

// sleeps puts the pod to sleep.
func (w *world) sleeps(request string) {
	w.Helper()
	w.kubectl("annotate", "--overwrite", "pod", "web", "diapause.dev/sleep="+request)
	w.asleep("True")
}

// wakes wakes the pod, and checks that it is the one that went to sleep.
func (w *world) wakes(request, life string) {
	w.Helper()
	w.kubectl("annotate", "--overwrite", "pod", "web", "diapause.dev/wake="+request)
	w.asleep("False")
	if now := w.kubectl("exec", "web", "--", "cat", "/tmp/born"); now != life {
		w.Errorf("the pod was born at %q, and woke as one of %q", life, now)
	}
}

func (w *world) asleep(status string) {
	w.Helper()
	w.kubectl("wait", "--for=condition=diapause.dev/Asleep="+status, "pod/web", "--timeout="+waitLimit.String())
}

// checkpoint returns the name of a new PodSnapshot of the pod.
func (w *world) checkpoint() string {
	w.Helper()
	w.must(w.Apply(w.ctx, `{apiVersion: podsnapshot.gke.io/v1, kind: PodSnapshotManualTrigger, `+
		`metadata: {name: kept, namespace: default}, spec: {targetPod: web}}`))
	w.kubectl("wait", "--for=condition=Triggered", "podsnapshotmanualtrigger/kept", "--timeout="+waitLimit.String())
	return w.kubectl("get", "podsnapshotmanualtrigger/kept", "--output=jsonpath={.status.snapshotCreated.name}")
}
