package daemonset

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"diapause.dev/test/bed"
	"diapause.dev/test/images"
	"diapause.dev/test/pages"
)

// The pages whose blocks are run. TestSteps of test/docs has the list of all blocks, and of what runs each.
const (
	quickstart      = "docs/quickstart.md"
	cluster         = "docs/install/cluster.md"
	snapshots       = "docs/tasks/snapshots.md"
	sleep           = "docs/tasks/sleep.md"
	termination     = "docs/tasks/termination.md"
	access          = "docs/tasks/access.md"
	encryption      = "docs/tasks/encryption-signing.md"
	upgrade         = "docs/operations/upgrade.md"
	stores          = "docs/install/stores.md"
	adoption        = "docs/operations/adopt.md"
	recovery        = "docs/operations/recovery.md"
	troubleshooting = "docs/operations/troubleshooting.md"
)

// reader does what pages say.
type reader struct {
	*testing.T
	ctx context.Context
	c   *bed.Cluster
	dir string // where commands run
}

// run runs a block with bash, and returns what it prints.
func (r *reader) run(page, begins string, pairs ...string) string {
	r.Helper()
	return r.bash(pages.Text(r, "../..", page, begins, pairs...))
}

// lines are the commands of a block that has one on each line, for what must be waited for between them.
func (r *reader) lines(page, begins string, pairs ...string) []string {
	r.Helper()
	return strings.Split(strings.TrimSuffix(pages.Text(r, "../..", page, begins, pairs...), "\n"), "\n")
}

// apply applies a block that is a manifest.
func (r *reader) apply(page, begins string, pairs ...string) {
	r.Helper()
	must(r.T, r.c.Apply(r.ctx, pages.Text(r, "../..", page, begins, pairs...)))
}

func (r *reader) bash(script string) string {
	r.Helper()
	cmd := exec.CommandContext(r.ctx, "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir, cmd.Env = r.dir, append(os.Environ(), "KUBECONFIG="+r.c.Kubeconfig)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		r.Fatalf("%v\n%s\n%s%s", err, script, &out, &stderr)
	}
	return out.String()
}

// prints fails the test if a block does not print something.
func (r *reader) prints(out string, all ...string) {
	r.Helper()
	for _, want := range all {
		if !strings.Contains(out, want) {
			r.Errorf("it does not print %q:\n%s", want, out)
		}
	}
}

// eventually waits until a field of an object is as wanted.
func (r *reader) eventually(object, field, want string) {
	r.Helper()
	must(r.T, bed.Until(r.ctx, func() error {
		got, err := r.c.Kubectl(r.ctx, "get", object, "--output=jsonpath="+field)
		if err == nil && got != want {
			err = fmt.Errorf("%s of %s is %q, want %q", field, object, got, want)
		}
		return err
	}))
}

// install installs Diapause, with agents that sign. There is no registry here: each node has the image, and overlay
// names it.
func (r *reader) install() {
	overlay, err := os.ReadFile("overlay/kustomization.yaml")
	must(r.T, err)
	must(r.T, os.CopyFS(filepath.Join(r.dir, "manifests"), os.DirFS("../../manifests")))
	must(r.T, os.Mkdir(filepath.Join(r.dir, "overlay"), 0o700))
	signed := strings.TrimPrefix(pages.Text(r, "../..", encryption, "patches:\n"+
		"- target: {kind: DaemonSet, name: diapause-agent}\n"+
		"  patch: |-\n    - op: add\n      path: /spec/template/spec/volumes/-\n      value: {name: signing"), "patches:\n")
	must(r.T, os.WriteFile(filepath.Join(r.dir, "overlay/kustomization.yaml"),
		[]byte(strings.Replace(string(overlay), "../../../manifests", "../manifests", 1)+signed), 0o600))
	r.bash("kubectl create namespace diapause-system")
	r.run(encryption, "openssl genpkey")
	wait := r.c.Node(0).Containerd.Supervise(r.ctx)
	out := r.run(cluster, "(cd manifests/image", "(cd manifests/image && kustomize edit set image "+
		"localhost/diapause-agent=REGISTRY/diapause-agent:1)\n", "", "-k manifests/", "-k overlay")
	r.prints(out, `daemon set "diapause-agent" successfully rolled out`,
		`deployment "diapause-controller" successfully rolled out`)
	must(r.T, wait())
}

// start does what the quick start says, with a directory in place of the bucket. The pod ends at once when it is
// deleted, since its shell has no handler of SIGTERM.
func (r *reader) start() {
	r.apply(quickstart, "apiVersion: podsnapshot.gke.io/v1",
		"gcs: {bucket: my-bucket}", "dir: {path: /var/lib/diapause/store}")
	pod := pages.Text(r, "../..", quickstart, "apiVersion: v1\nkind: Pod", "image: busybox", "image: "+images.Busybox,
		"  runtimeClassName", "  terminationGracePeriodSeconds: 1\n  runtimeClassName")
	must(r.T, os.WriteFile(filepath.Join(r.dir, "counter.yaml"), []byte(pod), 0o600))
	r.bash("kubectl apply -f counter.yaml")
	r.bash("kubectl wait --for=condition=Ready pod/counter --timeout=60s")
	r.counts(func(counts []string) bool { return len(counts) > 1 }) // then it can be told from a fresh one
	r.run(quickstart, "kubectl apply -f counter.yaml")
	out := r.run(snapshots, "kubectl get podsnapshotmanualtriggers,podsnapshots")
	name := kubectl(r.ctx, r.T, r.c, "get", "podsnapshotmanualtrigger/first",
		"--output=jsonpath={.status.snapshotCreated.name}")
	r.prints(out, "podsnapshotmanualtrigger.podsnapshot.gke.io/first", "podsnapshot.podsnapshot.gke.io/"+name,
		"Successfully restored the pod from PodSnapshot default/"+name)
	if counts := r.counts(func(counts []string) bool { return len(counts) > 0 }); counts[0] == "1" {
		r.Errorf("the counter begins anew: %q", counts)
	}
}

// counts returns what the pod of the quick start has counted, once that is enough.
func (r *reader) counts(enough func([]string) bool) (counts []string) {
	r.Helper()
	must(r.T, bed.Until(r.ctx, func() error {
		out, err := r.c.Kubectl(r.ctx, "logs", "counter")
		if counts = strings.Fields(out); err == nil && !enough(counts) {
			err = fmt.Errorf("the counter has come to %q", counts)
		}
		return err
	}))
	return counts
}

// use does what the other pages say about the pod of the quick start, and of the installation.
func (r *reader) use() {
	r.sleeps()
	r.permits()
	r.adopts()
	r.looks()
	r.bash("kubectl delete pod counter")
	r.bash(r.lines(upgrade, removeSnapshots)[0] + "\nkubectl delete podsnapshotmanualtriggers --all")
}

// sleeps has the pod sleep and wake, as before an upgrade, too.
func (r *reader) sleeps() {
	annotate := r.lines(sleep, "kubectl annotate pod counter")
	r.bash(annotate[0])
	const status = `{.metadata.annotations.diapause\.dev/sleep-status}`
	const asleep = `{.status.conditions[?(@.type=="diapause.dev/Asleep")].status}`
	r.eventually("pod/counter", asleep, "True")
	got := kubectl(r.ctx, r.T, r.c, "get", "pod", "counter", "--output=jsonpath="+status)
	if want := pages.Text(r, "../..", sleep, `{"sleep": "evening-7"`); !sameJSON(got, want) {
		r.Errorf("the answer is %s, want %s", got, want)
	}
	r.bash("kubectl create namespace sandboxes")
	r.apply(sleep, "apiVersion: diapause.dev/v1alpha1\nkind: SleepPolicy", // for no pod of this test
		"namespace: default", "namespace: sandboxes")
	out := r.run(upgrade, "kubectl get pods -A -o custom-columns", "sleeppolicy -n NAMESPACE NAME",
		"sleeppolicy -n sandboxes idle", "pod -n NAMESPACE NAME", "pod counter")
	r.prints(out, "counter", "True", "sleeppolicy.diapause.dev/idle patched")
	r.eventually("pod/counter", asleep, "False")
	r.bash(annotate[1])
	r.eventually("pod/counter", status, `{"sleep":"evening-7","wake":"morning-8","state":"Awake"}`)
	r.bash("kubectl delete namespace sandboxes --wait=false")
}

// permits gives an account of a namespace the roles of clients.
func (r *reader) permits() {
	r.bash("kubectl create namespace team-a && kubectl -n team-a create serviceaccount controller")
	const can = "kubectl -n team-a auth can-i --as=system:serviceaccount:team-a:controller "
	r.run(access, "kubectl -n team-a create rolebinding snapshots")
	r.prints(r.bash(can+"create podsnapshotmanualtriggers"), "yes")
	r.run(access, "kubectl label namespace team-a")
	r.prints(r.bash(can+"restore podsnapshots.podsnapshot.gke.io"), "yes")
	r.bash("kubectl delete namespace team-a --wait=false")
}

// adopts joins the keys of another cluster to those of this one, as before an adoption of its snapshots.
func (r *reader) adopts() {
	other := &reader{T: r.T, ctx: r.ctx, c: r.c, dir: filepath.Join(r.dir, "old")}
	must(r.T, os.Mkdir(other.dir, 0o700))
	other.bash(strings.Join(r.lines(encryption, "openssl genpkey")[:2], "\n"))
	other.bash(strings.Join(r.lines(encryption, "openssl rand -hex 32 > default")[:2], "\n"))
	r.run(encryption, "openssl rand -hex 32 > default")
	r.run(adoption, "cat old/trusted.pem >> trusted.pem")
	r.bash("kubectl -n diapause-system rollout status daemonset/diapause-agent")
	r.run(adoption, "cat old/default >> default")
	for secret, files := range map[string][]string{
		"diapause-signing": {"trusted.pem"}, "diapause-keys": {"default", "team-a"},
	} {
		for _, name := range files {
			escaped := strings.Replace(name, ".", `\.`, 1)
			got := r.bash("kubectl -n diapause-system get secret " + secret + " -o jsonpath='{.data." + escaped +
				"}' | base64 -d")
			if theirs := r.bash("cat old/" + name); !strings.HasSuffix(got, theirs) || len(got) != 2*len(theirs) {
				r.Errorf("%s of %s is not this cluster's key above that of the other", name, secret)
			}
		}
	}
}

// looks does what operators do to see how things are, and repeats what an upgrade does.
func (r *reader) looks() {
	r.run(termination, "kubectl annotate podsnapshotpolicy counters")
	agent := kubectl(r.ctx, r.T, r.c, "--namespace=diapause-system", "get", "pods",
		"--selector=app.kubernetes.io/name=diapause-agent", "--output=jsonpath={.items[0].metadata.name}")
	r.prints(r.run(troubleshooting, "kubectl -n diapause-system get pods -o wide", "AGENT", agent), agent, "runsc")
	r.prints(r.run(stores, "kubectl -n diapause-system exec AGENT", "AGENT", agent,
		"/path", "/var/lib/diapause/made"), "dir:/var/lib/diapause/made")
	r.prints(r.run(upgrade, ".cache/release/root", ".cache/release/root/usr/local/bin/runsc --version\n", ""),
		"runsc", "sleeping pods")
	r.prints(r.run(upgrade, "kubectl apply -k manifests/\n", "-k manifests/", "-k overlay"), "successfully rolled out")
	name := kubectl(r.ctx, r.T, r.c, "get", "podsnapshots", "--output=jsonpath={.items[0].metadata.name}")
	r.prints(r.run(recovery, "kubectl get podsnapshots -A"), name, r.c.Node(0).Name)
	r.prints(r.run(recovery, "kubectl -n diapause-system annotate --overwrite lease"), "diapause-agent annotated")
}

// fingerprint is that of the key that signs, as diapause verify shows it.
func (r *reader) fingerprint() string {
	return strings.TrimRight(strings.TrimSpace(r.run(encryption, "openssl pkey -pubin")), "=")
}

// uninstall takes Diapause away, and leaves the snapshots. It waits for the pod web, which runs, and calls between
// meanwhile. Then the definitions go, too.
func (r *reader) uninstall(between func()) {
	remove, err := filepath.Abs("uninstall")
	must(r.T, err)
	lines := r.lines(upgrade, removeSnapshots, "-k manifests/uninstall", "-k "+remove, "-k manifests/ ", "-k overlay ")
	if len(lines) != 7 {
		r.Fatalf("%s has other steps: %q", upgrade, lines)
	}
	wait := r.c.Node(0).Containerd.Supervise(r.ctx)
	r.bash(strings.Join(lines[1:3], "\n"))
	between()
	r.bash(lines[3])
	must(r.T, wait())
	installed(r.ctx, r.T, r.c.Node(0), false)
	r.bash(strings.Join(lines[4:6], "\n"))
	r.kept()
	for _, name := range []string{"s", "stopped"} {
		r.run(recovery, "kubectl patch podsnapshot -n NAMESPACE", "NAMESPACE NAME", "default "+name)
	}
	r.bash(lines[6])
}

// removeSnapshots begins the steps of an uninstallation. It is left out to keep the data.
const removeSnapshots = "kubectl delete podsnapshots --all --all-namespaces"

// kept checks that both snapshots of the pod web are still there, with their data.
func (r *reader) kept() {
	out := kubectl(r.ctx, r.T, r.c, "get", "podsnapshots", "--output=jsonpath={range .items[*]}"+
		`{.metadata.name} {.metadata.deletionTimestamp}{"\n"}{end}`)
	if want := "s \nstopped \n"; out != want {
		r.Errorf("the PodSnapshots are %q, want %q", out, want)
	}
	for _, name := range []string{"s", "stopped"} {
		found, err := filepath.Glob(r.c.Node(0).Path("/var/lib/diapause/store") + "/*/*/*" + name + "*")
		if err != nil || len(found) == 0 {
			r.Errorf("no data of %s: %v", name, err)
		}
	}
}

// sameJSON reports whether two texts of JSON say the same.
func sameJSON(a, b string) bool {
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && reflect.DeepEqual(x, y)
}
