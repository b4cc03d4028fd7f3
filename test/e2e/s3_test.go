package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/storage"
	"diapause.dev/storage/s3"
	"diapause.dev/test/bed"
	"diapause.dev/test/pages"
)

// s3Bucket is the bucket of the tests in S3, and s3Secret the Secret with its credentials.
const (
	s3Bucket = "snapshots-s3"
	s3Secret = "bucket-credentials"
)

// s3Objects get the credentials.
var s3Objects = []string{"daemonset/diapause-agent", "deployment/diapause-controller"}

// inS3 says that snapshots go to a bucket in S3, and selects pods.
const inS3 = `
apiVersion: podsnapshot.gke.io/v1
kind: PodSnapshotStorageConfig
metadata: {name: %[1]s}
spec: {snapshotStorageConfig: {s3: {bucket: %[2]s, path: e2e, region: us-east-1, endpoint: "%[3]s"}}}
---
apiVersion: podsnapshot.gke.io/v1
kind: PodSnapshotPolicy
metadata: {name: policy, namespace: %[1]s}
spec:
  storageConfigName: %[1]s
  selector: {matchLabels: {app: workload}}
  triggerConfig: {type: manual, postCheckpoint: resume}
`

// s3Controller gives the controller the credentials of the bucket by a mount. It does not run as root.
const s3Controller = `[
{"op": "add", "path": "/spec/template/spec/securityContext/fsGroup", "value": 65532},
{"op": "add", "path": "/spec/template/spec/volumes",
 "value": [{"name": "credentials", "secret": {"secretName": "` + s3Secret + `", "defaultMode": 288}}]},
{"op": "add", "path": "/spec/template/spec/containers/0/volumeMounts",
 "value": [{"name": "credentials", "mountPath": "/etc/diapause/credentials", "readOnly": true}]},
{"op": "add", "path": "/spec/template/spec/containers/0/args/-",
 "value": "--bucket-credentials=/etc/diapause/credentials"}]`

// s3Agent returns the patch that gives the agents the credentials of the bucket, as docs/install/stores.md says.
func (w *world) s3Agent() string {
	w.Helper()
	var pod struct {
		Volumes    []any
		Containers []struct {
			Args         []any
			VolumeMounts []any
		}
	}
	w.must(yaml.UnmarshalStrict([]byte(pages.Text(w, "../..", "docs/install/stores.md", "volumes:\n- {name: credentials",
		"bucket-of-tenant-a", s3Secret, "- name: agent\n ", "-")), &pod))
	type op struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	const spec = "/spec/template/spec/"
	patch, err := json.Marshal([]op{
		{"add", spec + "volumes/-", pod.Volumes[0]},
		{"add", spec + "containers/0/volumeMounts/-", pod.Containers[0].VolumeMounts[0]},
		{"add", spec + "containers/0/args/-", pod.Containers[0].Args[0]},
	})
	w.must(err)
	return string(patch)
}

// TestS3 keeps snapshots in a bucket of S3. A pod goes on on another node, and so does one that was asleep when it was
// deleted. Removed snapshots leave nothing in the bucket. The test has the cluster to itself: agents and controller get
// the bucket's credentials, which others would lose when they change the same mounts.
func TestS3(t *testing.T) {
	w := begin(t)
	w.must(w.left())
	bucket := w.useS3()

	p := w.run(w.pod("web", on(w.Node(0))))
	before := w.life(p)
	w.write("web", "/tmp/mark", "kept")
	first := w.checkpoint(p).name
	w.replicated(first)
	if status := w.snapshot(first).Status.StorageStatus; status == nil || status.S3 == nil {
		t.Errorf("the PodSnapshot does not say that it is in S3: %+v", status)
	}
	if got := w.stored(bucket, first); len(got) < 2 {
		t.Errorf("the bucket holds %q, want a manifest and a pack", got)
	}
	w.remove("web")
	saving := podsnapshotv1.AnnotationOnTermination
	w.kubectl("annotate", "podsnapshotpolicy", "policy", saving+"="+podsnapshotv1.OnTerminationCheckpoint)
	p = w.run(w.pod("web", on(w.Node(1)), from(first), grace(60)))
	w.restored(p, first, before)
	w.reads("web", "/tmp/mark", "kept")

	w.sleeps("web", "one")
	w.remove("web")
	var second string
	for _, s := range w.snapshots() {
		if s.Name != first {
			second = s.Name
		}
	}
	w.replicated(second)
	w.kubectl("annotate", "podsnapshotpolicy", "policy", saving+"-")
	w.restored(w.run(w.pod("web", on(w.Node(0)), from(second))), second, before)
	w.remove("web")
	for _, name := range []string{first, second} {
		w.discard(name)
	}
	w.eventually("nothing is left in the bucket", func() error {
		if left := w.stored(bucket, ""); len(left) > 0 {
			return fmt.Errorf("left: %q", left)
		}
		return nil
	})
}

// forget removes what the nodes know of the snapshots of the world's namespace. The record of a sleep outlives its
// snapshot, and an agent that has one is not ready without the credentials of the snapshot's store.
func (w *world) forget() (err error) {
	for _, n := range w.Nodes() {
		records, _ := filepath.Glob(n.Path("/var/lib/diapause/*/*.json")) // the pattern is well-formed
		for _, path := range records {
			if record, _ := os.ReadFile(path); strings.Contains(string(record), w.namespace) {
				err = errors.Join(err, os.Remove(path))
			}
		}
	}
	return err
}

// useS3 starts a service and has the world's snapshots go to a bucket there, until the test ends. It returns the
// bucket, by the credentials that agents and controllers have.
func (w *world) useS3() storage.Backend {
	w.Helper()
	server, err := bed.StartS3(w.ctx, s3Bucket)
	w.must(err)
	w.Cleanup(server.Kill)
	file := filepath.Join(w.TempDir(), s3Bucket+".ini")
	content := fmt.Sprintf("[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n", bed.S3AccessKey,
		bed.S3SecretKey)
	w.must(os.WriteFile(file, []byte(content), 0o600))
	w.kubectl("--namespace="+system, "create", "secret", "generic", s3Secret, "--from-file="+file)
	w.Cleanup(w.withoutS3)
	for object, patch := range map[string]string{s3Objects[0]: w.s3Agent(), s3Objects[1]: s3Controller} {
		w.kubectl("--namespace="+system, "patch", object, "--type=json", "--patch="+patch)
	}
	w.must(w.rollout(w.ctx))
	w.apply(fmt.Sprintf(inS3, w.namespace, s3Bucket, server.Endpoint))

	credentials, err := s3.CredentialsFile(file)
	w.must(err)
	place, err := s3.Parse(s3.Scheme + s3Bucket + "/e2e?region=us-east-1&endpoint=" + server.Endpoint)
	w.must(err)
	b, err := s3.Open(w.ctx, place, s3.Options{Credentials: credentials})
	w.must(err)
	w.Cleanup(func() { b.Close() })
	return b
}

// withoutS3 takes the credentials away from the installation, and the configuration from the cluster.
func (w *world) withoutS3() {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	errs := []error{w.forget()}
	for _, object := range s3Objects {
		_, err := w.Kubectl(ctx, "--namespace="+system, "rollout", "undo", object)
		errs = append(errs, err)
	}
	_, err := w.Kubectl(ctx, "delete", "podsnapshotstorageconfig", w.namespace)
	errs = append(errs, err, w.rollout(ctx))
	errs = append(errs, w.Client.CoreV1().Secrets(system).Delete(ctx, s3Secret, metav1.DeleteOptions{}))
	if err := errors.Join(errs...); err != nil {
		w.Error(err)
	}
}

// stored returns the packs of the world's namespace, and the objects of a snapshot, or of all if the name is empty.
func (w *world) stored(b storage.Backend, name string) (objects []string) {
	w.Helper()
	of := w.namespace + "/snapshots/"
	if name != "" {
		of += name + "/"
	}
	for _, prefix := range []string{w.namespace + "/packs/", of} {
		w.must(b.List(w.ctx, prefix, func(o storage.ObjectInfo) error {
			objects = append(objects, o.Name)
			return nil
		}))
	}
	return objects
}
