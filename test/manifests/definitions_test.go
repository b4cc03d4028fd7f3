package manifests

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// plurals are the resources by kind.
var plurals = map[string]string{
	"PodSnapshotStorageConfig": "podsnapshotstorageconfigs", "PodSnapshotPolicy": "podsnapshotpolicies",
	"PodSnapshotManualTrigger": "podsnapshotmanualtriggers", "PodSnapshot": "podsnapshots",
	"SleepPolicy": "sleeppolicies",
}

// namespace returns where the tests put objects of a kind.
func namespace(kind string) string {
	if kind == "PodSnapshotStorageConfig" {
		return ""
	}
	return "default"
}

// config returns a PodSnapshotStorageConfig with this store.
func config(store string) string {
	return "{kind: PodSnapshotStorageConfig, metadata: {name: c}, spec: {snapshotStorageConfig: " + store + "}}"
}

// policy returns a PodSnapshotPolicy with these fields of its spec besides the required.
func policy(fields string) string {
	return "{kind: PodSnapshotPolicy, metadata: {name: p}, spec: {" +
		"storageConfigName: c, selector: {matchLabels: {app: a}}, triggerConfig: {type: manual}" + fields + "}}"
}

// sleepPolicy returns a SleepPolicy with these fields of its spec besides the required.
func sleepPolicy(fields string) string {
	return "{apiVersion: diapause.dev/v1alpha1, kind: SleepPolicy, metadata: {name: p}, spec: {" +
		"selector: {matchLabels: {app: a}}, idleAfter: 1h30m" + fields + "}}"
}

// grouping returns the rule that groups by labels.
func grouping(labels string) string {
	return policy(", snapshotGroupingRules: {groupByLabelValue: {labels: " + labels + "}}")
}

// TestDefinitions creates objects, which the API server accepts, or refuses in words that say what
// to write.
func TestDefinitions(t *testing.T) {
	for name, tc := range map[string]struct {
		manifest string
		refused  []string // what the error says; none: accepted
	}{
		"gcs": {config("{gcs: {bucket: my-bucket, path: team-a/snapshots}}"), nil},
		"gcs as GKE writes it": {config("{gcs: {bucket: b_1.example.com, path: x/, tokenSource: federatedP4SA, " +
			"later: {x: 1}}}"), nil},
		"gcs with an empty path": {config("{gcs: {bucket: my-bucket, path: ''}}"), nil},
		"dir":                    {config("{dir: {path: /var/lib/diapause/store}}"), nil},
		"no backend": {
			config("{}"),
			[]string{
				"exactly one backend: gcs (with gcs.bucket), s3 (with s3.bucket and s3.region), azureBlob (with " +
					"azureBlob.account and azureBlob.container) or dir (with dir.path)",
			},
		},
		"two backends": {
			config("{gcs: {bucket: my-bucket}, dir: {path: /x}}"),
			[]string{"exactly one backend"},
		},
		"a backend that is not there": {config("{tape: {bucket: my-bucket}}"), []string{"exactly one backend"}},
		"s3": {
			config("{s3: {bucket: my-bucket, path: team-a/x, region: eu-west-1, later: {x: 1}}}"), nil,
		},
		"s3 elsewhere": {
			config("{s3: {bucket: my-bucket, region: r, endpoint: 'https://h.example.com:9000', pathStyle: true}}"), nil,
		},
		"s3 at an address": {config("{s3: {bucket: my-bucket, region: r, endpoint: 'http://[fd00::1]:9000'}}"), nil},
		"s3 and gcs": {
			config("{s3: {bucket: my-bucket, region: r}, gcs: {bucket: my-bucket}}"), []string{"exactly one backend"},
		},
		"s3 without a region": {config("{s3: {bucket: my-bucket}}"), []string{"s3.region: Required value"}},
		"s3 with a URL":       {config("{s3: {bucket: 's3://b', region: r}}"), []string{"write the bucket's name alone"}},
		"s3 with a path that leads out": {
			config("{s3: {bucket: my-bucket, path: a/../b, region: r}}"), []string{"write a directory in the bucket"},
		},
		"s3 with parameters": {
			config("{s3: {bucket: my-bucket, region: 'r&endpoint=x'}}"), []string{"write a region"},
		},
		"s3 at a path": {
			config("{s3: {bucket: my-bucket, region: r, endpoint: 'https://h/x'}}"), []string{"write https://host"},
		},
		"azureBlob": {
			config("{azureBlob: {account: acc, container: c-1, path: team-a/x.y, later: {x: 1}}}"), nil,
		},
		"azureBlob elsewhere": {
			config("{azureBlob: {account: acc, container: con, endpoint: 'https://acc.blob.core.chinacloudapi.cn'}}"), nil,
		},
		"azureBlob at an address": {
			config("{azureBlob: {account: acc, container: con, endpoint: 'http://127.0.0.1:10000/acc'}}"), nil,
		},
		"azureBlob of another account": {
			config("{azureBlob: {account: acc, container: con, endpoint: 'http://127.0.0.1:10000/other'}}"),
			[]string{"behind the host, azureBlob.endpoint may have azureBlob.account"},
		},
		"azureBlob without a container": {config("{azureBlob: {account: acc}}"), []string{"azureBlob.container: Required"}},
		"azureBlob with an account as a URL": {
			config("{azureBlob: {account: 'acc.blob.x', container: con}}"), []string{"write the account's name alone"},
		},
		"azureBlob with a path that leads out": {
			config("{azureBlob: {account: acc, container: con, path: a/../b}}"), []string{"write a directory in the container"},
		},
		"azureBlob with '--'": {
			config("{azureBlob: {account: acc, container: c--n}}"), []string{"write the container's name alone"},
		},
		"azureBlob and s3": {
			config("{azureBlob: {account: acc, container: con}, s3: {bucket: my-bucket, region: r}}"),
			[]string{"exactly one backend"},
		},
		"no store": {
			"{kind: PodSnapshotStorageConfig, metadata: {name: c}, spec: {}}",
			[]string{"spec.snapshotStorageConfig: Required value"},
		},
		"no bucket": {config("{gcs: {path: x}}"), []string{"gcs.bucket: Required value"}},
		"a bucket as a URL": {
			config("{gcs: {bucket: gs://my-bucket/x}}"),
			[]string{"write the bucket's name alone, as in my-bucket", "gcs.path"},
		},
		"a bucket in capitals":        {config("{gcs: {bucket: My-Bucket}}"), []string{"write the bucket's name alone"}},
		"a bucket of two letters":     {config("{gcs: {bucket: ab}}"), []string{"3 to 222"}},
		"a path with a leading slash": {config("{gcs: {bucket: my-bucket, path: /x}}"), []string{"without a leading '/'"}},
		"a path that leads out": {
			config("{gcs: {bucket: my-bucket, path: a/../../b}}"),
			[]string{"without '.' and '..'"},
		},
		"a path of lines": {
			config(`{gcs: {bucket: my-bucket, path: "a\nb"}}`),
			[]string{"write a directory in the bucket"},
		},
		"an unknown token source": {
			config("{gcs: {bucket: my-bucket, tokenSource: me}}"),
			[]string{`Unsupported value: "me"`, `"podKSA", "federatedP4SA"`},
		},
		"a relative dir": {
			config("{dir: {path: store}}"),
			[]string{"write an absolute path", "/var/lib/diapause/store"},
		},
		"an unclean dir":              {config("{dir: {path: /a/../b}}"), []string{"write an absolute path"}},
		"a dir with a trailing slash": {config("{dir: {path: /a/}}"), []string{"write an absolute path"}},
		"the root as a dir":           {config("{dir: {path: /}}"), []string{"write an absolute path"}},
		"a policy":                    {policy(""), nil},
		"a policy of GKE": {policy(", snapshotScope: rootfs-only, fromLater: {a: [1]}, retentionConfig: " +
			"{lastAccessTimeout: 90min, more: 1}"), nil},
		"a policy for all pods": {strings.Replace(policy(""), "{matchLabels: {app: a}}", "{}", 1), nil},
		"expressions": {strings.Replace(policy(""), "matchLabels: {app: a}",
			"matchExpressions: [{key: app, operator: In, values: [a]}]", 1), nil},
		"an unknown operator": {strings.Replace(policy(""), "matchLabels: {app: a}",
			"matchExpressions: [{key: app, operator: Has}]", 1), []string{"In, NotIn, Exists or DoesNotExist"}},
		"no selector": {
			strings.Replace(policy(""), "selector: {matchLabels: {app: a}}, ", "", 1),
			[]string{"spec.selector: Required value"},
		},
		"no storage config": {
			strings.Replace(policy(""), "storageConfigName: c, ", "", 1),
			[]string{"spec.storageConfigName: Required value"},
		},
		"a storage config's URL": {
			strings.Replace(policy(""), "storageConfigName: c", "storageConfigName: gs://x", 1),
			[]string{"metadata.name of a PodSnapshotStorageConfig"},
		},
		"no trigger": {
			strings.Replace(policy(""), ", triggerConfig: {type: manual}", "", 1),
			[]string{"spec.triggerConfig: Required value"},
		},
		"an unknown trigger": {
			strings.Replace(policy(""), "manual", "often", 1),
			[]string{`Unsupported value: "often"`, `"manual", "workload"`},
		},
		"stop": {strings.Replace(policy(""), "type: manual", "type: workload, postCheckpoint: stop",
			1), nil},
		"an unknown end": {strings.Replace(policy(""), "type: manual", "type: workload, postCheckpoint: kill",
			1), []string{`"resume", "stop"`}},
		"an unknown scope":           {policy(", snapshotScope: memory"), []string{`"whole-pod", "rootfs-only"`}},
		"a timeout":                  {policy(", retentionConfig: {lastAccessTimeout: 7d}"), nil},
		"a timeout of several units": {policy(", retentionConfig: {lastAccessTimeout: 1y2mo3d4h5min}"), nil},
		"a timeout in Go's words": {
			policy(", retentionConfig: {lastAccessTimeout: 7h30m}"),
			[]string{"units y, mo, d, h and min", "as in 7d, 90min or 1d12h"},
		},
		"a timeout of nothing": {policy(", retentionConfig: {lastAccessTimeout: 0d}"), []string{"more than zero"}},
		"an empty timeout": {
			policy(", retentionConfig: {lastAccessTimeout: ''}"),
			[]string{"write whole numbers with the units"},
		},
		"no timeout": {
			policy(", retentionConfig: {}"),
			[]string{"retentionConfig.lastAccessTimeout: Required value"},
		},
		"a number as a timeout": {
			policy(", retentionConfig: {lastAccessTimeout: 7}"),
			[]string{"must be of type string"},
		},
		"groups": {
			grouping(`["agents.x-k8s.io/sandbox-name-hash", app], groupRetentionPolicy: {maxSnapshotCountPerGroup: 3}`),
			nil,
		},
		"groups without a limit": {grouping(`[app], groupRetentionPolicy: {maxSnapshotCountPerGroup: 0}`), nil},
		"groups by nothing":      {grouping(`[]`), []string{"labels", "at least 1 items"}},
		"no groups": {
			policy(", snapshotGroupingRules: {}"),
			[]string{"snapshotGroupingRules.groupByLabelValue: Required value"},
		},
		"groups by a value":         {grouping(`["app=web"]`), []string{"write the key of a pod's label"}},
		"groups by one label twice": {grouping(`[app, app]`), []string{"Duplicate value"}},
		"fewer than no snapshots": {
			grouping(`[app], groupRetentionPolicy: {maxSnapshotCountPerGroup: -1}`),
			[]string{"greater than or equal to 0"},
		},
		"no number of snapshots": {
			grouping(`[app], groupRetentionPolicy: {}`),
			[]string{"maxSnapshotCountPerGroup: Required value"},
		},
		"a trigger": {
			"{kind: PodSnapshotManualTrigger, metadata: {name: t}, spec: {targetPod: web-0}}",
			nil,
		},
		"a trigger for nothing": {
			"{kind: PodSnapshotManualTrigger, metadata: {name: t}, spec: {}}",
			[]string{"spec.targetPod: Required value"},
		},
		"a trigger of a later GKE": {"{kind: PodSnapshotManualTrigger, metadata: {name: t}, spec: {targetPod: web-0, " +
			"why: x}}", nil},
		"a trigger across namespaces": {"{kind: PodSnapshotManualTrigger, metadata: {name: t}, spec: {targetPod: " +
			"other/web-0}}", []string{"metadata.name of a pod of this namespace"}},
		"a snapshot": {"{kind: PodSnapshot, metadata: {name: s}, spec: {policyName: none}}", nil},
		"a snapshot without a policy": {
			"{kind: PodSnapshot, metadata: {name: s}, spec: {}}",
			[]string{"spec.policyName: Required value"},
		},
		"a sleep policy": {
			sleepPolicy(", minAwake: 0s, dryRun: true, endWithoutWaking: false, ready: Always, " +
				"idle: {cpuMillicores: 10, packetsPerMinute: 0}"),
			nil,
		},
		"a sleep policy that never sleeps": {
			strings.Replace(sleepPolicy(""), "1h30m", "0s", 1),
			[]string{"from 1s to 168h", "1h30m"},
		},
		"a sleep policy in days": {
			strings.Replace(sleepPolicy(""), "1h30m", "2d", 1),
			[]string{"whole hours, minutes and seconds"},
		},
		"a long sleep policy": {strings.Replace(sleepPolicy(""), "1h30m", "169h", 1), []string{"from 1s to 168h"}},
		"a sleep policy for nobody": {
			strings.Replace(sleepPolicy(""), "selector: {matchLabels: {app: a}}, ", "", 1),
			[]string{"spec.selector: Required value"},
		},
		"a sleep policy that is ready at times": {
			sleepPolicy(", ready: Sometimes"), []string{"spec.ready: Unsupported value", "Always"},
		},
		"a sleep policy without a processor": {
			sleepPolicy(", idle: {cpuMillicores: 0}"), []string{"greater than or equal to 1"},
		},
		"a snapshot without a spec": {"{kind: PodSnapshot, metadata: {name: s}}", []string{"spec: Required value"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := object(t, tc.manifest)
			r := resource(t, api.Config, namespace(o.GetKind()), plurals[o.GetKind()])
			_, err := r.Create(t.Context(), o,
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
			refused(t, err, tc.refused...)
		})
	}
}

// TestChanges changes objects, of which some things stay what they are.
func TestChanges(t *testing.T) {
	for name, tc := range map[string]struct {
		manifest, patch string
		refused         []string
	}{
		"another backend": {
			config("{dir: {path: /a}}"), `{"spec": {"snapshotStorageConfig": {"dir": null, "gcs": {"bucket": "abc"}}}}`,
			[]string{"the kind of backend cannot be changed", "create another PodSnapshotStorageConfig"},
		},
		"another place": {
			config("{dir: {path: /a}}"),
			`{"spec": {"snapshotStorageConfig": {"dir": {"path": "/b"}}}}`, nil,
		},
		"another policy": {
			"{kind: PodSnapshot, metadata: {name: s}, spec: {policyName: p}}",
			`{"spec": {"policyName": "q"}}`,
			[]string{"policyName cannot be changed"},
		},
		"another label": {
			"{kind: PodSnapshot, metadata: {name: s}, spec: {policyName: p}}",
			`{"metadata": {"labels": {"a": "b"}}}`, nil,
		},
		"another pod": {
			"{kind: PodSnapshotManualTrigger, metadata: {name: t}, spec: {targetPod: a}}",
			`{"spec": {"targetPod": "b"}}`,
			[]string{"create another PodSnapshotManualTrigger"},
		},
		"another field": {
			"{kind: PodSnapshotManualTrigger, metadata: {name: t}, spec: {targetPod: a}}",
			`{"metadata": {"labels": {"a": "b"}}}`, nil,
		},
		"another trigger's type": {policy(""), `{"spec": {"triggerConfig": {"type": "workload"}}}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			o := object(t, tc.manifest)
			made := create(t, namespace(o.GetKind()), plurals[o.GetKind()], o)
			r := resource(t, api.Config, namespace(o.GetKind()), plurals[o.GetKind()])
			_, err := r.Patch(t.Context(), made.GetName(), "application/merge-patch+json", []byte(tc.patch),
				metav1.PatchOptions{})
			refused(t, err, tc.refused...)
		})
	}
}

func TestDefaults(t *testing.T) {
	p := create(t, "default", "podsnapshotpolicies", object(t, policy(", fromLater: {a: 1}")))
	c := create(t, "", "podsnapshotstorageconfigs", object(t, config("{gcs: {bucket: abc}}")))
	for _, f := range []struct {
		o    *unstructured.Unstructured
		path string
		want string
	}{
		{p, "spec.triggerConfig.postCheckpoint", "resume"},
		{p, "spec.snapshotScope", "whole-pod"},
		{p, "spec.fromLater.a", "1"},
		{c, "spec.snapshotStorageConfig.gcs.tokenSource", "podKSA"},
	} {
		v, _, err := unstructured.NestedFieldNoCopy(f.o.Object, strings.Split(f.path, ".")...)
		if err != nil || fmt.Sprint(v) != f.want {
			t.Errorf("%s is %v, %v; want %s", f.path, v, err, f.want)
		}
	}
}

// TestStatus: the status is written through its subresource alone, which in turn writes nothing
// else, and holds what the Go types hold.
func TestStatus(t *testing.T) {
	made := create(t, "default", "podsnapshots",
		object(t, "{kind: PodSnapshot, metadata: {name: s}, spec: {policyName: p}, status: {observedGeneration: 5}}"))
	if _, ok := made.Object["status"]; ok {
		t.Error("a status was written without its subresource")
	}
	var s podsnapshotv1.PodSnapshot
	must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(made.Object, &s))
	now := metav1.Now().Rfc3339Copy()
	s.Spec.PolicyName = "q"
	s.Status = podsnapshotv1.PodSnapshotStatus{
		Conditions: []metav1.Condition{{
			Type: podsnapshotv1.ConditionReady, Status: metav1.ConditionTrue,
			Reason: podsnapshotv1.ReasonAllSnapshotsAvailable, LastTransitionTime: now,
		}},
		LastAccessTime: &now, ObservedCheckpointRetryCount: 1, ObservedGeneration: 1,
		StorageStatus: &podsnapshotv1.StorageStatus{
			GCS: &podsnapshotv1.GCSStorageStatus{ObservedGCSPath: "gs://b/default/snapshots/s"},
		},
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&s)
	must(t, err)
	updated, err := resource(t, api.Config, "default", "podsnapshots").UpdateStatus(t.Context(),
		&unstructured.Unstructured{Object: content}, metav1.UpdateOptions{})
	must(t, err)
	var got podsnapshotv1.PodSnapshot
	must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(updated.Object, &got))
	if equalJSON(t, got.Status) != equalJSON(t, s.Status) {
		t.Errorf("the status is %s, want %s", equalJSON(t, got.Status), equalJSON(t, s.Status))
	}
	if got.Spec.PolicyName != "p" {
		t.Error("the spec was written with the status")
	}
}

func equalJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	must(t, err)
	return string(data)
}

// TestColumns: what kubectl get shows.
func TestColumns(t *testing.T) {
	condition := func(kind, reason string) string {
		return fmt.Sprintf(`{type: %s, status: "True", reason: %s, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}`,
			kind, reason)
	}
	ready := condition("Ready", "AllSnapshotsAvailable")
	for _, tc := range []struct{ manifest, status, want string }{
		{config("{dir: {path: /a}}"), "conditions: [" + ready + "]", "NAME READY AGE c True"},
		{policy(""), "conditions: [" + ready + "]", "NAME TRIGGER READY AGE p manual True"},
		{
			"{kind: PodSnapshotManualTrigger, metadata: {name: t}, spec: {targetPod: web}}",
			"snapshotCreated: {name: abc}, conditions: [" + condition("Triggered", "Complete") + "]",
			"NAME POD STATUS SNAPSHOT AGE t web Complete abc",
		},
		{
			"{kind: PodSnapshot, metadata: {name: s}, spec: {policyName: p}}",
			"conditions: [" + condition("Checkpoint", "Succeeded") + ", " + ready + "]",
			"NAME STATUS POLICY AGE s AllSnapshotsAvailable p",
		},
	} {
		o := object(t, tc.manifest)
		made := create(t, namespace(o.GetKind()), plurals[o.GetKind()], o)
		made.Object["status"] = object(t, "{"+tc.status+"}").Object
		delete(made.Object["status"].(map[string]any), "apiVersion")
		_, err := resource(t, api.Config, namespace(o.GetKind()), plurals[o.GetKind()]).UpdateStatus(t.Context(), made,
			metav1.UpdateOptions{})
		must(t, err)
		out, err := api.Kubectl(t.Context(), "get", plurals[o.GetKind()])
		must(t, err)
		if got := strings.Join(strings.Fields(out), " "); !strings.HasPrefix(got, tc.want+" ") {
			t.Errorf("kubectl get shows %q, want %q and an age", got, tc.want)
		}
	}
}
